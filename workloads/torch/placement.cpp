#include "workloads/torch/placement.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#ifdef SPARFUSE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include <mutex>
#include <set>
#include <string>

#include "core/base/error.hpp"
#include "core/device/card.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse::workloads {
namespace {

const std::vector<std::string> kPrecisions = {"fp32", "tf32", "bf16"};

// Tensor cores for TF32 and bfloat16 came with compute capability 8.0.
constexpr int kTensorCoreMajor = 8;

void CheckCard(const Card& card, Precision precision) {
  if (precision == Precision::kFp32 || card.major >= kTensorCoreMajor) return;
  SPARFUSE_THROW(kUnsupported, "precision = \"" + kPrecisions[static_cast<std::size_t>(precision)] +
                                   "\" on " + card.name + ", of compute capability " +
                                   std::to_string(card.major) + "." + std::to_string(card.minor) +
                                   ": expected a card of 8.0 or more, or precision = \"fp32\"");
}

#ifdef SPARFUSE_CUDA
// The loader picks one CUDA runtime for this process: the toolkit's or the one beside LibTorch.
void CheckRuntime() {
  const int loaded = CudaVersions().runtime;
  const auto built = static_cast<int>(at::detail::getCUDAHooks().versionCUDART());
  if (loaded >= built) return;
  SPARFUSE_THROW(kUnsupported, "the loaded CUDA runtime is " + DottedVersion(loaded) +
                                   ", LibTorch was built with " + DottedVersion(built) +
                                   ": build with a toolkit of that version or a later one");
}
#endif

// LibTorch repeats some warnings with every call; cuDNN's recurrent layers print two in each
// forward pass.
class EachOnce final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    {
      const std::lock_guard lock(mutex_);
      if (!told_.insert(warning.msg()).second) return;
    }
    WarningHandler::process(warning);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> told_;
};

}  // namespace

at::Device PlaceOf(const Stream& stream, Precision precision) {
  const Device device = stream.device;
  if (device.kind == DeviceKind::kHost) {
    SPARFUSE_REQUIRE(precision != Precision::kTf32,
                     "precision = \"tf32\" on the host: only tensor cores compute with TF32; "
                     "expected \"fp32\" or \"bf16\", or device = \"cuda\"");
    return at::kCPU;
  }
  if (device.kind != DeviceKind::kCuda) {
    SPARFUSE_THROW(kUnsupported, "workloads train on the host or on CUDA, on no other device");
  }
  CheckCard(CardOf(device.index), precision);
#ifdef SPARFUSE_CUDA
  CheckRuntime();
  gpu::SetReleaseCached([] { c10::cuda::CUDACachingAllocator::emptyCache(); });
#endif
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.index));
}

void SetNumerics(at::DeviceType device, Precision precision, bool deterministic) {
  at::Context& context = at::globalContext();
  const bool strict = device == at::kCUDA && deterministic;
  static EachOnce warnings;
  c10::WarningUtils::set_warning_handler(&warnings);
  // These setters keep LibTorch's older and newer state of one setting alike. LibTorch refuses a
  // mixture.
  context.setAllowTF32CuBLAS(precision == Precision::kTf32);
  context.setAllowTF32CuDNN(precision == Precision::kTf32);
  context.setBenchmarkCuDNN(!strict);
  context.setDeterministicCuDNN(strict);
  // Warns if an operation has no other kernel: maximum pooling of overlapping windows.
  context.setDeterministicAlgorithms(strict, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);  // nothing here reads such memory
  // The fused attention kernels add up gradients of keys and values in any order. LibTorch changes
  // that only if warnings are errors. Matrix products and a softmax add up in a fixed order.
  context.setSDPUseFlash(!strict);
  context.setSDPUseMemEfficient(!strict);
  context.setSDPUseCuDNN(!strict);
}

at::Tensor CopyTo(at::Device device, const at::Tensor& tensor) {
  if (tensor.device() == device) return tensor;
  if (!tensor.is_cpu()) return tensor.to(device);
  return tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

Autocast::Autocast(at::DeviceType device, Precision precision)
    : device_(device), enabled_(precision == Precision::kBf16) {
  if (!enabled_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!enabled_) return;
  // The outermost scope drops the parameters' bfloat16 copies, which the next Update makes stale.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_type_);
}

}  // namespace sparfuse::workloads

// What the tests of sparsifiers on devices share: one selection there with its memory.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/gpu/runtime.hpp"
#include "tests/sparsifier_oracle.hpp"

namespace sparfuse::testing {

inline constexpr Device kEmulatedDevice{DeviceKind::kEmulated, 0};
inline constexpr Device kCudaDevice{DeviceKind::kCuda, 0};

inline std::string DeviceName(Device device) {
  return device.kind == DeviceKind::kCuda ? "cuda" : "emulated";
}

// "" or why a test cannot run there.
inline std::string WhyNotOn(Device device) {
  if (device.kind != DeviceKind::kCuda || CudaDeviceCount() > 0) return "";
  return "this build or machine has no CUDA device (sparfuse doctor)";
}

// Memory of a device that tests fill and read through a stream.
template <class T>
class OnDevice {
 public:
  OnDevice(const Stream& stream, std::size_t size, const char* what = "a test")
      : stream_(stream), buffer_(size, stream.device, what) {}
  OnDevice(const Stream& stream, const std::vector<T>& from) : OnDevice(stream, from.size()) {
    Write(from);
  }

  T* data() const { return buffer_.data(); }
  std::size_t size() const { return buffer_.size(); }
  void Write(const std::vector<T>& from, std::size_t at = 0) {
    gpu::CopyAsync(stream_, buffer_.data() + at, from.data(), from.size() * sizeof(T));
    gpu::Synchronize(stream_);
  }
  std::vector<T> Read() const {
    std::vector<T> to(buffer_.size());
    gpu::CopyAsync(stream_, to.data(), buffer_.data(), to.size() * sizeof(T));
    gpu::Synchronize(stream_);
    return to;
  }

 private:
  Stream stream_;
  Buffer<T> buffer_;
};

// As Selection, on a device: owns the stream, the workspace, the state, the residual and a slot
// with guards behind it. What it does is split as in an engine: Launch gives work to the stream,
// Take waits for it.
class DeviceSelection {
 public:
  // skew: gradient and residual begin this many elements after an aligned address.
  DeviceSelection(const Sparsifier& sparsifier, std::size_t n, double density, Device device,
                  bool feedback, std::vector<std::int64_t> shape = {}, std::size_t skew = 0)
      : sparsifier_(sparsifier),
        n_(n),
        density_(density),
        skew_(skew),
        shape_(shape.empty() ? std::vector{static_cast<std::int64_t>(n)} : std::move(shape)),
        capacity_(SlotCapacityFor(UnderTest().find(std::string(sparsifier.name())), sparsifier, n,
                                  shape_, density)),
        stream_(device),
        workspace_(device),
        state_(sparsifier.MakeDeviceState(n, device)),
        gradient_(stream_.view(), n + skew, "a gradient"),
        residual_(stream_.view(), feedback ? n + skew : 0, "a residual"),
        indices_(stream_.view(), std::vector<std::uint32_t>(capacity_ + kGuard, kGuardIndex)),
        values_(stream_.view(), std::vector<float>(capacity_ + kGuard, kGuardValue)),
        report_(stream_.view(), 1) {}

  // Gradient and an empty report to the device.
  void Give(const std::vector<float>& gradient) {
    gradient_.Write(gradient, skew_);
    report_.Write({SlotReport{}});
  }

  // In the order of another stream, from pinned memory.
  void CopyGradient(const Stream& stream, const float* pinned) {
    gpu::CopyAsync(stream, gradient_.data() + skew_, pinned, n_ * sizeof(float));
  }

  // Returns at once, where the sparsifier selects on the device.
  void Launch(std::uint64_t step, std::uint32_t id = 7, const std::uint32_t* only_if = nullptr) {
    const Stream& stream = stream_.view();
    DeviceSlot slot{indices_.data(), values_.data(), capacity_, report_.data()};
    const SelectContext host{&pool_, &host_workspace_, &host_counters_, {}};
    const bool feedback = residual_.size() > 0;
    sparsifier_.SelectOnDevice(
        {stream, &workspace_, only_if, &host},
        {{gradient_.data() + skew_, n_, stream},
         {feedback ? residual_.data() + skew_ : nullptr, feedback ? n_ : 0, stream}},
        density_, InfoOf(step, id), state_.get(), slot);
  }

  // What was selected. Throws what the report says.
  Selected Take(std::uint64_t step, std::uint32_t id = 7) {
    const std::size_t count = TakeReport(Report(), InfoOf(step, id), &counters_);
    Selected selected{indices_.Read(), values_.Read()};
    selected.indices.resize(count);
    selected.values.resize(count);
    return selected;
  }

  Selected Run(const std::vector<float>& gradient, std::uint64_t step, std::uint32_t id = 7) {
    Give(gradient);
    Launch(step, id);
    return Take(step, id);
  }

  SlotReport Report() const { return report_.Read().front(); }
  std::vector<float> Residual() const {
    std::vector<float> residual = residual_.Read();
    residual.erase(residual.begin(),
                   residual.begin() + static_cast<long>(std::min(skew_, residual.size())));
    return residual;
  }
  void SetResidual(const std::vector<float>& residual) { residual_.Write(residual, skew_); }

  // Nothing was written behind the slot.
  bool GuardsIntact() const {
    const auto indices = indices_.Read();
    const auto values = values_.Read();
    return std::all_of(indices.begin() + static_cast<long>(capacity_), indices.end(),
                       [](std::uint32_t i) { return i == kGuardIndex; }) &&
           std::all_of(values.begin() + static_cast<long>(capacity_), values.end(),
                       [](float v) { return v == kGuardValue; });
  }
  // Nor anything in it since it was made.
  bool SlotUntouched() const {
    const auto indices = indices_.Read();
    return std::all_of(indices.begin(), indices.end(),
                       [](std::uint32_t i) { return i == kGuardIndex; });
  }

  std::size_t capacity() const { return capacity_; }
  std::size_t Count() const { return sparsifier_.Count(n_, shape_, density_); }
  const Stream& stream() const { return stream_.view(); }
  const SelectCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint32_t kGuardIndex = 0xdeadbeef;
  static constexpr float kGuardValue = -12345.0f;

  TensorInfo InfoOf(std::uint64_t step, std::uint32_t id) const {
    return {id, "conv1.weight", shape_, step};
  }

  const Sparsifier& sparsifier_;
  std::size_t n_;
  double density_;
  std::size_t skew_;
  std::vector<std::int64_t> shape_;
  std::size_t capacity_;
  ThreadPool pool_{1};
  Workspace host_workspace_;
  SelectCounters host_counters_;
  SelectCounters counters_;
  gpu::GpuStream stream_;
  DeviceWorkspace workspace_;
  std::unique_ptr<SparsifierState> state_;
  OnDevice<float> gradient_;
  OnDevice<float> residual_;
  OnDevice<std::uint32_t> indices_;
  OnDevice<float> values_;
  OnDevice<SlotReport> report_;
};

}  // namespace sparfuse::testing

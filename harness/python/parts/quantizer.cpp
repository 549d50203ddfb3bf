// Encodes whole tensors by a class that is written in Python.
#include <pybind11/numpy.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/coding/quantizers/encode.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"
#include "harness/python/arrays.hpp"
#include "harness/python/parts/memory.hpp"
#include "harness/python/parts/parts.hpp"
#include "harness/python/parts/views.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

class PythonQuantizer final : public Quantizer, public HasMemory {
 public:
  PythonQuantizer(const PartClass& part, KeptObject object, bool unbiased, std::uint64_t seed)
      : part_(part), object_(std::move(object)), unbiased_(unbiased), seed_(seed) {}

  std::string_view name() const noexcept override { return part_.source().name; }

  PartMemory Memory() const override { return part_.MemoryOf(object_); }

  std::size_t EncodedBytes(std::size_t n) const override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = bytes_.find(n); known != bytes_.end()) return known->second;
    }
    const PartCall call(part_, "encoded_bytes(" + std::to_string(n) + ")");
    const std::size_t bytes = call([&]() -> std::size_t {
      const py::object returned = CallPython(object_->attr("encoded_bytes"), py::int_(n));
      if (PyIndex_Check(returned.ptr()) == 0) {
        call.Returned("a " + TypeText(returned) + "; expected an integer");
      }
      const long long number = NumberOf(returned);
      if (number < 4 || number % 4 != 0 || static_cast<std::size_t>(number) > 8 * n + 4096) {
        call.Returned(std::to_string(number) + "; expected a multiple of 4, from 4 to " +
                      std::to_string(8 * n + 4096) + " for " + std::to_string(n) + " elements");
      }
      return static_cast<std::size_t>(number);
    });
    const std::lock_guard lock(mutex_);
    return bytes_[n] = bytes;
  }

  // A quantizer in Python gives no bound on the error of one encoding.
  double ErrorBound(std::size_t /*n*/) const override { return unbiased_ ? HUGE_VAL : 1.0; }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    SelectInput input = BeginEncode(*this, source, info, out);
    ForInputBlocks(context, input, info, [](std::size_t, std::size_t) {});
    const PartCall call(part_, "encode(x, random) of tensor \"" + std::string(info.name) +
                                   "\", step " + std::to_string(info.step));
    call([&] {
      const py::array x = ReadOnlyCopy(std::span(input.x(), input.n));
      const py::object returned =
          CallPython(object_->attr("encode"), x, RandomOf(info, context.rank));
      ReadBytesOf(returned, out, call);
      RequireLetGo(x, "x", returned, call);
    });
    if (input.residual == nullptr) return;
    std::vector<float> decoded(input.n);
    Decode(out, decoded);
    for (std::size_t i = 0; i < input.n; ++i) input.residual[i] -= decoded[i];
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t n, std::size_t begin,
                  std::span<float> out) const override {
    std::vector<float> decoded(n);
    Decode(payload, decoded);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += decoded[begin + i];
  }

  // Decodes each payload once, as a whole.
  void Accumulate(std::span<const std::span<const std::byte>> payloads, float scale,
                  std::span<float> out, ThreadPool& pool) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    std::vector<float> decoded(out.size());
    for (const auto& payload : payloads) {
      Decode(payload, decoded);
      ForBlocks(out.size(), pool, [&](std::size_t begin, std::size_t size) {
        for (std::size_t i = begin; i < begin + size; ++i) out[i] += decoded[i];
      });
    }
    if (scale == 1.0f) return;
    const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
    ForBlocks(out.size(), pool, [&](std::size_t begin, std::size_t size) {
      kernels.scale(out.data() + begin, size, scale);
    });
  }

 private:
  // Equal numbers for equal seed, tensor, step and rank, whoever draws them and when.
  py::object RandomOf(const TensorInfo& info, int rank) const {
    py::list key;
    for (const std::uint64_t word :
         {seed_, std::uint64_t{info.id}, info.step, static_cast<std::uint64_t>(rank)}) {
      key.append(word);
    }
    return CallPython(py::module_::import("numpy").attr("random").attr("default_rng"), key);
  }

  static void ReadBytesOf(const py::object& returned, std::span<std::byte> out,
                          const PartCall& call) {
    const py::array bytes = ArrayOf(returned, "uint8", call);
    if (!bytes.dtype().is(py::dtype::of<std::uint8_t>()) || bytes.ndim() != 1) {
      call.Returned("an array of " + std::to_string(bytes.ndim()) + " dimensions, dtype " +
                    py::cast<std::string>(py::str(bytes.dtype())) +
                    "; expected uint8 in one dimension");
    }
    if (static_cast<std::size_t>(bytes.size()) != out.size()) {
      call.Returned(std::to_string(bytes.size()) + " bytes; expected the " +
                    std::to_string(out.size()) + " that encoded_bytes says");
    }
    const py::array plain = Plain(bytes);
    std::memcpy(out.data(), plain.data(), out.size());
  }

  void Decode(std::span<const std::byte> payload, std::span<float> out) const {
    const PartCall call(part_, "decode(b, n) of " + std::to_string(payload.size()) + " bytes to " +
                                   std::to_string(out.size()) + " elements");
    call([&] {
      const py::array b = ReadOnlyCopy(
          std::span(reinterpret_cast<const std::uint8_t*>(payload.data()), payload.size()));
      const py::object returned = CallPython(object_->attr("decode"), b, py::int_(out.size()));
      ReadFloatsOf(returned, out, call);
      RequireLetGo(b, "b", returned, call);
    });
  }

  const PartClass& part_;
  KeptObject object_;
  bool unbiased_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<std::size_t, std::size_t> bytes_;
};

QuantizerDescriptor DescribeQuantizer(PartClass& part) {
  const bool unbiased = part.Flag("unbiased", false);
  return {.name = part.source().name,
          .paper = part.Text("paper"),
          .revision = 1,
          .unbiased = unbiased,
          .needs_feedback = part.Flag("needs_feedback", false),
          .deviations = part.Text("deviations"),
          .options = part.options(),
          .make = [&part, unbiased](const Options& resolved,
                                    std::uint64_t seed) -> std::unique_ptr<Quantizer> {
            return std::make_unique<PythonQuantizer>(part, part.Make(resolved, seed), unbiased,
                                                     seed);
          }};
}

}  // namespace

const QuantizerDescriptor& QuantizerOf(PartSource source) {
  return KeepPart(std::move(source), {"encoded_bytes(n)", "encode(x, random)", "decode(b, n)"},
                  &DescribeQuantizer);
}

}  // namespace sparfuse::python

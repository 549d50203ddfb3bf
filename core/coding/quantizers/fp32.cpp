// Encodes whole tensors unchanged (fp32), for runs that send dense tensors in a sparse payload
// without compression.
#include <cstring>

#include "core/base/error.hpp"
#include "core/coding/quantizers/encode_device.hpp"

namespace sparfuse {
namespace {

class Fp32 final : public DeviceQuantizer {
 public:
  std::string_view name() const noexcept override { return "fp32"; }

  std::size_t EncodedBytes(std::size_t n) const override { return n * sizeof(float); }

  double ErrorBound(std::size_t /*n*/) const override { return 0; }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    SelectInput input = BeginEncode(*this, source, info, out);
    auto* const values = reinterpret_cast<float*>(out.data());
    ForInputBlocks(context, input, info, [&](std::size_t begin, std::size_t size) {
      std::memcpy(values + begin, input.x() + begin, size * sizeof(float));
      if (input.residual != nullptr) {
        std::memset(input.residual + begin, 0, size * sizeof(float));
      }
    });
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t /*n*/, std::size_t begin,
                  std::span<float> out) const override {
    const auto* const values = reinterpret_cast<const float*>(payload.data()) + begin;
    bool finite = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      finite &= KeyOf(values[i]) < kInfinityKey;
      out[i] += values[i];
    }
    if (!finite) {
      SPARFUSE_THROW(kComm, "fp32: an element at or after ", begin,
                     " is not finite; expected a payload of Encode");
    }
  }

  void EncodeThere(const DeviceEncode& encode) const override {
    EncodeWholeOnDevice<false>(encode);
  }

  void AccumulateThere(const DeviceAccumulate& accumulate) const override {
    AccumulateDecoded(accumulate, gpu::DecodeFp32{});
  }
};

}  // namespace

QuantizerDescriptor Fp32Descriptor() {
  return {.name = "fp32",
          .paper = "none: the reference",
          .unbiased = true,
          .make = MakePlainQuantizer<Fp32>};
}

}  // namespace sparfuse

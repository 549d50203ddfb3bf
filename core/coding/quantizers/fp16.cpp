// Rounds to IEEE half precision (fp16), to nearest, ties to even. Values beyond 65504 saturate, and
// error feedback sends the rest in later steps: sent + residual = x exactly for |x| < 2^29, since a
// float minus the nearest half is a float.
//
// Source:      P. Micikevicius et al., "Mixed precision training", ICLR 2018 (half-precision
//              gradients).
// Deviations:  no loss scaling: error feedback keeps the values below the range of a half.

#include "core/base/error.hpp"
#include "core/coding/quantizers/encode_device.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {
namespace {

class Fp16 final : public DeviceQuantizer {
 public:
  std::string_view name() const noexcept override { return "fp16"; }

  std::size_t EncodedBytes(std::size_t n) const override {
    return RoundUp(n * sizeof(std::uint16_t), 4);
  }

  // If x lies below the range of a half, all of it is lost.
  double ErrorBound(std::size_t /*n*/) const override { return 1; }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    SelectInput input = BeginEncode(*this, source, info, out);
    const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
    auto* const codes = reinterpret_cast<std::uint16_t*>(out.data());
    ForInputBlocks(context, input, info, [&](std::size_t begin, std::size_t size) {
      float* const residual = input.residual == nullptr ? nullptr : input.residual + begin;
      kernels.half_encode(input.x() + begin, residual, size, codes + begin);
    });
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t /*n*/, std::size_t begin,
                  std::span<float> out) const override {
    const auto* const codes = reinterpret_cast<const std::uint16_t*>(payload.data());
    const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
    if (kernels.half_add(codes + begin, out.size(), out.data()) >= kHalfInfinity) {
      SPARFUSE_THROW(kComm, "fp16: an element at or after ", begin,
                     " is not finite; expected a payload of Encode");
    }
  }

  void EncodeThere(const DeviceEncode& encode) const override { EncodeWholeOnDevice<true>(encode); }

  void AccumulateThere(const DeviceAccumulate& accumulate) const override {
    AccumulateDecoded(accumulate, gpu::DecodeFp16{});
  }
};

}  // namespace

QuantizerDescriptor Fp16Descriptor() {
  return {.name = "fp16",
          .paper = "Micikevicius et al., ICLR 2018",
          .deviations =
              "Gradients are not scaled before rounding: error feedback keeps values below the "
              "range of a half, and values above it saturate at 65504.",
          .make = MakePlainQuantizer<Fp16>};
}

}  // namespace sparfuse

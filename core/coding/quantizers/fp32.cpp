// Encodes whole tensors unchanged (fp32), for runs that send dense tensors in a sparse payload
// without compression.
#include <bit>
#include <cstring>
#include <string>

#include "core/base/error.hpp"
#include "core/coding/quantizers/encode.hpp"

namespace sparfuse {
namespace {

class Fp32 final : public Quantizer {
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
      finite &= (std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu) < kInfinityKey;
      out[i] += values[i];
    }
    if (!finite) {
      SPARFUSE_THROW(kComm, "fp32: an element at or after " + std::to_string(begin) +
                                " is not finite; expected a payload of Encode");
    }
  }

  bool WorksOnDevice() const noexcept override { return true; }

  void EncodeOnDevice(const DeviceContext& context, int /*rank*/, const SelectSource& source,
                      const TensorInfo& info, DeviceSpan<std::byte> out,
                      std::uint32_t* not_finite) const override {
    EncodeFp32OnDevice(CheckedEncode(*this, {context, source, out, not_finite}, info));
  }

  void AccumulateOnDevice(const DeviceContext& context, std::span<const std::byte* const> payloads,
                          float scale, DeviceSpan<float> out, std::uint64_t* fault) const override {
    AccumulateFp32OnDevice({context, payloads, scale, out, fault});
  }
};

}  // namespace

QuantizerDescriptor Fp32Descriptor() {
  return {.name = "fp32",
          .paper = "none: the reference",
          .revision = 1,
          .unbiased = true,
          .needs_feedback = false,
          .deviations = "",
          .options = {},
          .make = [](const Options&, std::uint64_t) -> std::unique_ptr<Quantizer> {
            return std::make_unique<Fp32>();
          }};
}

}  // namespace sparfuse

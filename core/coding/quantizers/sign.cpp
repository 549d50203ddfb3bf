// Quantizes by EF-signSGD: sends signs, a bit each, and their common magnitude mean(|x|).
//
// Source:      S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD
//              and other gradient compression schemes", ICML 2019, algorithm 1.
// Deviations:  none known. A zero counts as positive.
#include <string>

#include "core/base/error.hpp"
#include "core/coding/quantizers/encode.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {
namespace {

// Wire form: the scale, then words of 32 signs, the first in the lowest bit, 1 for x >= 0.
class Sign final : public Quantizer {
 public:
  std::string_view name() const noexcept override { return "sign"; }

  std::size_t EncodedBytes(std::size_t n) const override {
    return sizeof(float) + RoundUp(n, 32) / 8;
  }

  // Lemma 8, where x has a single element that is not zero.
  double ErrorBound(std::size_t n) const override { return 1 - 1 / static_cast<double>(n); }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    SelectInput input = BeginEncode(*this, source, info, out);
    const SelectKernels& select = SelectKernelsFor(ActiveIsa());
    const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
    auto& scale = *reinterpret_cast<float*>(out.data());
    auto* const words = reinterpret_cast<std::uint32_t*>(out.data() + sizeof scale);
    const std::size_t blocks = (input.n + kBlock - 1) / kBlock;
    const auto sums = WorkspaceArray<BlockSums>(*context.workspace, kUseChunkParts, blocks);
    ForInputBlocks(context, input, info, [&](std::size_t begin, std::size_t size) {
      select.measure(input.x() + begin, size, kWantAbs, &sums[begin / kBlock]);
      kernels.sign_pack(input.x() + begin, size, words + begin / 32);
    });
    double sum = 0;
    for (const BlockSums& block : sums) sum += block.sum_abs;
    scale = static_cast<float>(sum / static_cast<double>(input.n));
    if (input.residual == nullptr) return;
    ForBlocks(input.n, *context.pool, [&](std::size_t begin, std::size_t size) {
      kernels.sign_keep(input.residual + begin, size, scale);
    });
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t /*n*/, std::size_t begin,
                  std::span<float> out) const override {
    const float scale = *reinterpret_cast<const float*>(payload.data());
    CheckScale(*this, scale);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(payload.data() + sizeof scale);
    QuantizeKernelsFor(ActiveIsa()).sign_add(words + begin / 32, out.size(), scale, out.data());
  }

  bool WorksOnDevice() const noexcept override { return true; }

  void EncodeOnDevice(const DeviceContext& context, int /*rank*/, const SelectSource& source,
                      const TensorInfo& info, DeviceSpan<std::byte> out,
                      std::uint32_t* not_finite) const override {
    EncodeSignOnDevice(CheckedEncode(*this, {context, source, out, not_finite}, info));
  }

  void AccumulateOnDevice(const DeviceContext& context, std::span<const std::byte* const> payloads,
                          float scale, DeviceSpan<float> out, std::uint64_t* fault) const override {
    AccumulateSignOnDevice({context, payloads, scale, out, fault});
  }
};

std::unique_ptr<Quantizer> Make(const Options& /*resolved*/, std::uint64_t /*seed*/) {
  return std::make_unique<Sign>();
}

}  // namespace

QuantizerDescriptor SignDescriptor() {
  return {.name = "sign",
          .paper = "Karimireddy et al., ICML 2019",
          .revision = 1,
          .unbiased = false,
          .needs_feedback = true,
          .deviations = "",
          .options = {},
          .make = Make};
}

}  // namespace sparfuse

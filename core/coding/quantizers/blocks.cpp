// Quantizes in blocks that share a scale (block_codes.hpp): int8-blocks, int4-blocks, fp8-blocks.
//
// Source:      G. Wang et al., "ZeRO++: extremely efficient collective communication for giant
//              model training", 2023, section 3 (blocks of integers); P. Micikevicius et al., "FP8
//              formats for deep learning", 2022 (E4M3).
// Deviations:  none known of the codes. Scales are float32 and symmetric.
#include "core/coding/quantizers/blocks.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/quantizers/block_codes.hpp"
#include "core/coding/quantizers/encode.hpp"

namespace sparfuse {
namespace {

constexpr std::string_view kNames[] = {"int8-blocks", "int4-blocks", "fp8-blocks"};

class Blocks final : public Quantizer {
 public:
  Blocks(const BlockForm& form, std::uint64_t seed) : form_(form), seed_(seed) {}

  std::string_view name() const noexcept override {
    return kNames[static_cast<std::size_t>(form_.code)];
  }

  std::size_t EncodedBytes(std::size_t n) const override { return form_.Bytes(n); }

  // Bounds the lost part. Integers: one element of a block is the largest, and the others are half
  // a step, which is lost. At random, others of f steps lose f (1 - f) squares of a step on
  // average; the ratio is largest at 1 / f = 1 + sqrt(1 + others / top^2). fp8: a sixteenth of each
  // element, or half of the smallest step; at random these bound deviations.
  double ErrorBound(std::size_t n) const override {
    const auto others = static_cast<double>(std::min(n, form_.block)) - 1;
    const double rounding = 1e-12;  // of the scale, and of the decoded values
    if (form_.code == BlockCode::kFp8) {
      return 1.0 / 256 + others * 0x1p-20 / (448.0 * 448.0) + rounding;
    }
    const double top = form_.code == BlockCode::kInt8 ? 127 : 7;
    if (form_.stochastic) return (std::sqrt(1 + others / (top * top)) - 1) / 2 + rounding;
    return others / (4 * top * top + others) + rounding;
  }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    SelectInput input = BeginEncode(*this, source, info, out);
    auto* const scales = reinterpret_cast<float*>(out.data());
    std::byte* const codes = out.data() + form_.CodesAt(input.n);
    const RandomStream stream(
        RandomStream(seed_, info.id, info.step).At(static_cast<std::uint64_t>(context.rank)),
        info.id, info.step);
    ForInputBlocks(context, input, info, [&](std::size_t begin, std::size_t size) {
      std::vector<float> decoded(std::min(form_.block, size));
      for (std::size_t at = begin; at < begin + size; at += form_.block) {
        const std::size_t count = std::min(form_.block, begin + size - at);
        const std::span<const float> values(input.x() + at, count);
        const float scale = scales[at / form_.block] = BlockScale(form_.code, values);
        std::byte* const to = codes + form_.CodeBytes(at);
        EncodeBlock(form_.code, values, scale, to, {form_.stochastic ? &stream : nullptr, at});
        if (input.residual == nullptr) continue;
        DecodeBlock(form_.code, to, scale, std::span(decoded).first(count));
        for (std::size_t i = 0; i < count; ++i) input.residual[at + i] -= decoded[i];
      }
    });
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t n, std::size_t begin,
                  std::span<float> out) const override {
    const auto* const scales = reinterpret_cast<const float*>(payload.data());
    const std::byte* const codes = payload.data() + form_.CodesAt(n);
    std::vector<float> decoded(std::min(form_.block, out.size()));
    for (std::size_t at = 0; at < out.size(); at += form_.block) {
      const std::size_t count = std::min(form_.block, out.size() - at);
      const float scale = scales[(begin + at) / form_.block];
      CheckScale(*this, scale);
      const auto part = std::span(decoded).first(count);
      if (!DecodeBlock(form_.code, codes + form_.CodeBytes(begin + at), scale, part)) {
        SPARFUSE_THROW(kComm, name(), ": an invalid code at or after element ", begin + at);
      }
      for (std::size_t i = 0; i < count; ++i) out[at + i] += decoded[i];
    }
  }

 private:
  BlockForm form_;
  std::uint64_t seed_;
};

QuantizerDescriptor Descriptor(BlockCode code) {
  return {
      .name = kNames[static_cast<std::size_t>(code)],
      .paper = code == BlockCode::kFp8 ? "Micikevicius et al., FP8 Formats, 2022"
                                       : "Wang et al., ZeRO++, 2023",
      .options = {BlockOption(), RoundingOption()},
      .make = [code](const Options& resolved, std::uint64_t seed) -> std::unique_ptr<Quantizer> {
        const std::size_t block = CheckedBlock(kNames[static_cast<std::size_t>(code)], resolved);
        return std::make_unique<Blocks>(BlockForm{code, block, RoundsAtRandom(resolved)}, seed);
      }};
}

}  // namespace

OptionSpec BlockOption() {
  return WholeOption("block", 256, 32, 1024,
                     "elements that share a scale: 32, 64, 128, 256 or 1024");
}

OptionSpec RoundingOption() {
  return ChoiceOption("rounding", "nearest", {"nearest", "stochastic"},
                      "stochastic: a value becomes one of its two neighbours at random, with the "
                      "right expectation");
}

bool RoundsAtRandom(const Options& resolved) {
  return StringOption(resolved, "rounding") == "stochastic";
}

std::size_t CheckedBlock(std::string_view owner, const Options& resolved) {
  const std::int64_t block = IntOption(resolved, "block");
  SPARFUSE_REQUIRE(block == 32 || block == 64 || block == 128 || block == 256 || block == 1024,
                   owner, ": block = ", block, ": expected 32, 64, 128, 256 or 1024");
  return static_cast<std::size_t>(block);
}

std::span<const QuantizerDescriptor> BlockQuantizers() {
  static const std::vector<QuantizerDescriptor> table = {
      Descriptor(BlockCode::kInt8), Descriptor(BlockCode::kInt4), Descriptor(BlockCode::kFp8)};
  return table;
}

}  // namespace sparfuse

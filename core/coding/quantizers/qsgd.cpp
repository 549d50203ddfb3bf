// Quantizes by QSGD: each element becomes one of q levels of its bucket's L2 norm, rounded at
// random with the right expectation, and is sent as a signed byte.
//
// Source:      D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD:
//              communication-efficient SGD via gradient quantization and encoding", NeurIPS 2017,
//              section 3.1.
// Deviations:  levels are sent as bytes instead of in Elias code.
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/coding/quantizers/encode_device.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {
namespace {

// Wire form: the buckets' norms, then a byte an element, padded to a multiple of four.
class Qsgd final : public DeviceQuantizer {
 public:
  // bucket: elements, a power of two up to kBlock; 0: the whole tensor is one.
  Qsgd(float levels, std::size_t bucket, std::uint64_t seed)
      : levels_(levels), bucket_(bucket), seed_(seed) {}

  std::string_view name() const noexcept override { return "qsgd"; }

  std::size_t EncodedBytes(std::size_t n) const override { return CodesAt(n) + RoundUp(n, 4); }

  // Lemma 3.1.
  double ErrorBound(std::size_t n) const override {
    const auto size = static_cast<double>(bucket_ == 0 ? n : std::min(n, bucket_));
    const auto levels = static_cast<double>(levels_);
    return std::min(size / (levels * levels), std::sqrt(size) / levels);
  }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    SelectInput input = BeginEncode(*this, source, info, out);
    const SelectKernels& select = SelectKernelsFor(ActiveIsa());
    const RandomStream stream = StreamOf(info, context.rank);
    auto* const norms = reinterpret_cast<float*>(out.data());
    auto* const codes = reinterpret_cast<std::int8_t*>(out.data() + CodesAt(input.n));
    if (bucket_ != 0) {
      ForInputBlocks(context, input, info, [&](std::size_t begin, std::size_t size) {
        for (std::size_t at = begin; at < begin + size; at += bucket_) {
          const std::size_t count = std::min(bucket_, begin + size - at);
          BlockSums sums;
          select.measure(input.x() + at, count, kWantSquares, &sums);
          norms[at / bucket_] = QsgdNorm(sums.sum_squares, sums.max_key);
          EncodeRange(input, at, count, norms[at / bucket_], stream, codes);
        }
      });
      return;
    }
    const std::size_t blocks = (input.n + kBlock - 1) / kBlock;
    const auto sums = WorkspaceArray<BlockSums>(*context.workspace, kUseChunkParts, blocks);
    ForInputBlocks(context, input, info, [&](std::size_t begin, std::size_t size) {
      select.measure(input.x() + begin, size, kWantSquares, &sums[begin / kBlock]);
    });
    double squares = 0;
    std::uint32_t largest = 0;
    for (const BlockSums& block : sums) {
      squares += block.sum_squares;
      largest = std::max(largest, block.max_key);
    }
    norms[0] = QsgdNorm(squares, largest);
    ForBlocks(input.n, *context.pool, [&](std::size_t begin, std::size_t size) {
      EncodeRange(input, begin, size, norms[0], stream, codes);
    });
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t n, std::size_t begin,
                  std::span<float> out) const override {
    const auto* const norms = reinterpret_cast<const float*>(payload.data());
    const auto* const codes = reinterpret_cast<const std::int8_t*>(payload.data() + CodesAt(n));
    const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
    const std::size_t bucket = bucket_ == 0 ? out.size() : bucket_;
    for (std::size_t at = 0; at < out.size(); at += bucket) {
      const float norm = norms[bucket_ == 0 ? 0 : (begin + at) / bucket_];
      CheckScale(*this, norm);
      kernels.level_add(codes + begin + at, std::min(bucket, out.size() - at),
                        QsgdStep(norm, levels_), out.data() + at);
    }
  }

  void EncodeThere(const DeviceEncode& encode) const override {
    const gpu::EncodeInput input = EncodeInputOf(encode);
    std::byte* const out = encode.out.data;
    const gpu::LevelCoding coding{levels_, StreamOf(encode.info, encode.rank).key(),
                                  reinterpret_cast<std::int8_t*>(out + CodesAt(input.n)),
                                  input.residual};
    const DeviceContext& context = encode.context;
    auto* const norms = reinterpret_cast<float*>(out);
    if (bucket_ != 0) {
      gpu::Launch(context.stream, EncodeBlocksOf(input.n),
                  gpu::EncodeBuckets{input, coding, static_cast<std::uint32_t>(bucket_), norms},
                  context.only_if);
      return;
    }
    MeasureOnDevice<true>(encode, nullptr);
    const float* const x = input.residual == nullptr ? input.gradient : input.residual;
    gpu::Launch(context.stream, gpu::EncodeLevels::Blocks(input.n),
                gpu::EncodeLevels{x, input.n, coding, norms}, context.only_if);
  }

  void AccumulateThere(const DeviceAccumulate& accumulate) const override {
    const int bits = bucket_ == 0 ? 63 : std::countr_zero(bucket_);
    AccumulateDecoded(accumulate,
                      gpu::DecodeQsgd{CodesAt(accumulate.out.size),
                                      static_cast<std::uint32_t>(bucket_), bits, levels_});
  }

 private:
  RandomStream StreamOf(const TensorInfo& info, int rank) const {
    return {RandomStream(seed_, info.id, info.step).At(static_cast<std::uint64_t>(rank)), info.id,
            info.step};
  }

  std::size_t CodesAt(std::size_t n) const {
    return sizeof(float) * (bucket_ == 0 ? 1 : (n + bucket_ - 1) / bucket_);
  }

  // Encodes elements [begin, begin + count), of one norm. Sends nothing if the step underflows.
  void EncodeRange(const SelectInput& input, std::size_t begin, std::size_t count, float norm,
                   const RandomStream& stream, std::int8_t* codes) const {
    const float step = QsgdStep(norm, levels_);
    if (step == 0.0f) {
      std::memset(codes + begin, 0, count);
      return;
    }
    float* const residual = input.residual == nullptr ? nullptr : input.residual + begin;
    QuantizeKernelsFor(ActiveIsa())
        .level_encode(input.x() + begin, residual, count, step, levels_, stream.key(), begin,
                      codes + begin);
  }

  float levels_;
  std::size_t bucket_;
  std::uint64_t seed_;
};

std::unique_ptr<Quantizer> Make(const Options& resolved, std::uint64_t seed) {
  const std::int64_t bucket = IntOption(resolved, "bucket");
  SPARFUSE_REQUIRE(
      bucket == 0 || (bucket >= 64 && std::has_single_bit(static_cast<std::uint64_t>(bucket))),
      "quantizer qsgd: bucket = ", bucket,
      ": expected 0 (the whole tensor) or a power of two from 64 to 4096");
  return std::make_unique<Qsgd>(static_cast<float>(IntOption(resolved, "levels")),
                                static_cast<std::size_t>(bucket), seed);
}

}  // namespace

QuantizerDescriptor QsgdDescriptor() {
  return {
      .name = "qsgd",
      .paper = "Alistarh et al., NeurIPS 2017",
      .unbiased = true,
      .deviations = "Levels travel as bytes instead of in Elias code.",
      .options = {WholeOption("levels", 127, 1, 127, "levels between 0 and the norm of a bucket"),
                  WholeOption(
                      "bucket", 512, 0, 4096,
                      "elements that share a norm, a power of two from 64; 0: the whole tensor")},
      .make = Make};
}

}  // namespace sparfuse

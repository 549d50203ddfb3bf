// Quantizes by EF-signSGD: sends signs, a bit or a byte each, and their common magnitude mean(|x|).
//
// Source:      S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD
//              and other gradient compression schemes", ICML 2019, algorithm 1.
// Deviations:  none known. A zero counts as positive.
#include <algorithm>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/quantizers/encode_device.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {
namespace {

// Wire form: the scale, then words of 32 signs, the first in the lowest bit, 1 for x >= 0.
class Sign final : public DeviceQuantizer {
 public:
  std::string_view name() const noexcept override { return "sign"; }

  std::size_t EncodedBytes(std::size_t n) const override {
    return sizeof(float) + RoundUp(n, 32) / 8;
  }

  // Lemma 8, for an x with a single nonzero element.
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

  void EncodeThere(const DeviceEncode& encode) const override {
    MeasureOnDevice<false>(encode,
                           reinterpret_cast<std::uint32_t*>(encode.out.data + sizeof(float)));
    const gpu::EncodeInput input = EncodeInputOf(encode);
    if (input.residual == nullptr) return;
    const gpu::Quads quads = gpu::QuadsOf(input.n, input.residual);
    const auto* const scale = reinterpret_cast<const float*>(encode.out.data);
    gpu::Launch(encode.context.stream, gpu::ElementwiseBlocks(quads),
                gpu::KeepBesideSigns{quads, input.residual, scale}, encode.context.only_if);
  }

  void AccumulateThere(const DeviceAccumulate& accumulate) const override {
    AccumulateDecoded(accumulate, gpu::DecodeSign{});
  }
};

// Sends signs like published code that does not pack them. Wire form: the scale, then a byte a
// sign, 1 for x >= 0.
class SignBytes final : public Quantizer {
 public:
  std::string_view name() const noexcept override { return "sign-bytes"; }

  std::size_t EncodedBytes(std::size_t n) const override { return sizeof(float) + RoundUp(n, 4); }

  double ErrorBound(std::size_t n) const override { return signs_.ErrorBound(n); }

  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    CheckEncodeArguments(*this, source, info, out.size());
    const std::size_t n = source.gradient.size;
    std::vector<std::uint32_t> packed(signs_.EncodedBytes(n) / sizeof(std::uint32_t));
    signs_.Encode(context, source, info, std::as_writable_bytes(std::span(packed)));
    *reinterpret_cast<std::uint32_t*>(out.data()) = packed.front();
    std::byte* const bytes = out.data() + sizeof(float);
    std::fill(bytes + n, out.data() + out.size(), std::byte{0});
    ForBlocks(n, *context.pool, [&](std::size_t begin, std::size_t size) {
      std::uint32_t word = 0;
      for (std::size_t i = begin; i < begin + size; ++i) {
        if (i % 32 == 0) word = packed[1 + i / 32];
        bytes[i] = static_cast<std::byte>(word & 1);
        word >>= 1;
      }
    });
  }

  void AddDecoded(std::span<const std::byte> payload, std::size_t /*n*/, std::size_t begin,
                  std::span<float> out) const override {
    const float scale = *reinterpret_cast<const float*>(payload.data());
    CheckScale(*this, scale);
    const std::span<const std::byte> signs = payload.subspan(sizeof scale + begin, out.size());
    std::byte any{0};
    for (std::size_t i = 0; i < out.size(); ++i) {
      any |= signs[i];
      out[i] += signs[i] != std::byte{0} ? scale : -scale;
    }
    if (any <= std::byte{1}) return;
    SPARFUSE_THROW(kComm, name(), ": a sign that is neither 0 nor 1; expected a payload of Encode");
  }

 private:
  Sign signs_;
};

}  // namespace

QuantizerDescriptor SignDescriptor() {
  return {.name = "sign",
          .paper = "Karimireddy et al., ICML 2019",
          .needs_feedback = true,
          .make = MakePlainQuantizer<Sign>};
}

QuantizerDescriptor SignBytesDescriptor() {
  QuantizerDescriptor descriptor = SignDescriptor();
  descriptor.name = "sign-bytes";
  descriptor.make = MakePlainQuantizer<SignBytes>;
  return descriptor;
}

}  // namespace sparfuse

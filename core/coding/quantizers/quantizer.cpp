#include "core/coding/quantizers/quantizer.hpp"

#include <bit>
#include <cstring>
#include <string>

#include "core/base/error.hpp"
#include "core/base/outside_parts.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "core/coding/quantizers/encode.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {

namespace {

std::string Describe(const Quantizer& quantizer, const TensorInfo& info) {
  return Concat(quantizer.name(), ": ", Describe(info), ": ");
}

// Returns the bits of an element of a payload, after the payload's head.
std::size_t BitsOfElement(const Quantizer& quantizer) {
  const std::string_view name = quantizer.name();
  if (name == "sign") return 1;
  if (name == "int4-blocks") return 4;
  if (name == "qsgd" || name == "sign-bytes" || name == "int8-blocks" || name == "fp8-blocks")
    return 8;
  return name == "fp16" ? 16 : 32;
}

template <class... Parts>
[[noreturn]] void FailOf(std::size_t payload, const Parts&... what) {
  SPARFUSE_THROW(kComm, "quantized payload ", payload, " is corrupt: ", what...);
}

// Payloads are whole words: the highest bits of the last word, after the last element, are zeros.
bool PaddingIsZero(const Quantizer& quantizer, std::span<const std::byte> payload, std::size_t n) {
  const std::size_t used = n * BitsOfElement(quantizer) % 32;
  if (used == 0) return true;
  std::uint32_t last = 0;
  std::memcpy(&last, payload.last(sizeof last).data(), sizeof last);
  return last >> used == 0;
}

}  // namespace

void CheckEncodeArguments(const Quantizer& quantizer, const SelectSource& source,
                          const TensorInfo& info, std::size_t out_bytes) {
  const std::string who = Describe(quantizer, info);
  const std::size_t n = source.gradient.size;
  SPARFUSE_REQUIRE(n >= 1, who, "the gradient is empty; expected at least one element");
  SPARFUSE_REQUIRE(source.residual.size == 0 || source.residual.size == n, who, "the residual has ",
                   source.residual.size, " elements; expected 0 or ", n);
  SPARFUSE_REQUIRE(out_bytes == quantizer.EncodedBytes(n), who, "the buffer has ", out_bytes,
                   " bytes; expected ", quantizer.EncodedBytes(n));
}

SelectInput BeginEncode(const Quantizer& quantizer, const SelectSource& source,
                        const TensorInfo& info, std::span<std::byte> out) {
  CheckEncodeArguments(quantizer, source, info, out.size());
  if (source.gradient.stream.device.kind != DeviceKind::kHost ||
      source.residual.stream.device.kind != DeviceKind::kHost) {
    SPARFUSE_THROW(kUnsupported, Describe(quantizer, info),
                   "memory on a device; Encode works on the host");
  }
  std::memset(out.last(4).data(), 0, 4);
  const bool feedback = source.residual.size != 0;
  return {source.gradient.data, feedback ? source.residual.data : nullptr, source.gradient.size,
          feedback};
}

void CheckScale(const Quantizer& quantizer, float scale) {
  if (std::bit_cast<std::uint32_t>(scale) < kInfinityKey) return;  // neither negative nor infinite
  SPARFUSE_THROW(kComm, quantizer.name(), ": a scale of ", scale,
                 "; expected a finite scale of at least 0");
}

void AccumulateQuantized(const Quantizer& quantizer,
                         std::span<const std::span<const std::byte>> payloads, float scale,
                         std::span<float> out, ThreadPool& pool) {
  const std::size_t n = out.size();
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    if (payloads[p].size() != quantizer.EncodedBytes(n)) {
      FailOf(p, quantizer.name(), ": ", payloads[p].size(), " bytes; expected ",
             quantizer.EncodedBytes(n), " for ", n, " elements");
    }
    if (!PaddingIsZero(quantizer, payloads[p], n)) {
      FailOf(p, quantizer.name(), ": it has more than ", n,
             " elements; expected the number that was encoded");
    }
  }
  quantizer.Accumulate(payloads, scale, out, pool);
}

void Quantizer::Accumulate(std::span<const std::span<const std::byte>> payloads, float scale,
                           std::span<float> out, ThreadPool& pool) const {
  const std::size_t n = out.size();
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  ForBlocks(n, pool, [&](std::size_t begin, std::size_t size) {
    const std::span<float> block = out.subspan(begin, size);
    std::fill(block.begin(), block.end(), 0.0f);
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      try {
        AddDecoded(payloads[p], n, begin, block);
      } catch (const Error& error) {
        FailOf(p, error.what());
      }
    }
    if (scale != 1.0f) kernels.scale(block.data(), size, scale);
  });
}

std::span<const QuantizerDescriptor> Quantizers() {
  static const std::vector<QuantizerDescriptor> table = {
      Fp32Descriptor(), Fp16Descriptor(), QsgdDescriptor(), SignDescriptor(), SignBytesDescriptor(),
  };
  return table;
}

const QuantizerDescriptor& FindQuantizer(std::string_view name) {
  if (const auto* outside = OutsideParts<QuantizerDescriptor>::Find(name)) return *outside;
  std::vector<std::string> known;
  for (const auto table : {Quantizers(), BlockQuantizers()}) {
    for (const QuantizerDescriptor& descriptor : table) {
      if (descriptor.name == name) return descriptor;
      known.emplace_back(descriptor.name);
    }
  }
  SPARFUSE_THROW(kConfig, "unknown quantizer \"", name, "\"", Suggestion(name, known));
}

}  // namespace sparfuse

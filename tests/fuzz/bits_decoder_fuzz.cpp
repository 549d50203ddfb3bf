// Feeds arbitrary bytes to the decoders of formats without a header: selections by chunks,
// exponents of floats, and blocks with a scale. The first three bytes give the decoder and the
// number of values; the rest is the input. Accepted selections must equal their encoder's output,
// and accepted floats must come back when they are encoded again.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/coding/chunk_coding.hpp"
#include "core/coding/exponent_coding.hpp"
#include "core/coding/quantizers/block_codes.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace sparfuse {
namespace {

using fuzz::Require;

void DecodeOneSelection(unsigned form, std::size_t n, std::span<const std::byte> bytes) {
  constexpr ValueCoding kValues[] = {ValueCoding::kF32, ValueCoding::kF16, ValueCoding::kCodes4};
  PayloadCoding coding{kValues[form % 3], IndexCoding::kU12};
  coding.chunk = form / 3 % 2 == 0 ? 4096 : 5;
  coding.density = form / 6 % 2 == 0 ? 0 : 0.25;
  std::vector<std::uint32_t> indices(n);
  std::vector<float> values(n);
  DecodedSelection decoded;
  if (!fuzz::Accepts([&] { decoded = DecodeChunks(coding, bytes, n, indices, values); },
                     FailureKind::kComm)) {
    return;
  }
  Require(decoded.bytes <= bytes.size(), "no more bytes than there are");
  const auto& payload = decoded.payload;
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    Require(payload.indices[i] < n, "indices within the range");
    Require(i == 0 || payload.indices[i - 1] < payload.indices[i], "increasing indices");
    Require(std::isfinite(payload.values[i]), "finite values");
  }
  if (coding.values == ValueCoding::kCodes4) return;  // levels need not be means
  std::vector<std::byte> again(decoded.bytes);
  std::vector<float> sent(payload.values.begin(), payload.values.end());
  EncodeChunks(coding, payload.indices, sent, {}, n, again);
  Require(std::memcmp(again.data(), bytes.data(), again.size()) == 0, "the encoding is the same");
}

void DecodeSomeExponents(std::size_t n, std::span<const std::byte> bytes) {
  std::vector<float> values(n);
  if (!fuzz::Accepts([&] { DecodeExponents(bytes, values, "exponents"); }, FailureKind::kComm)) {
    return;
  }
  std::vector<std::byte> coded(ExponentBytesBound(n));
  coded.resize(EncodeExponents(values, coded));
  std::vector<float> again(n);
  DecodeExponents(coded, again, "exponents");
  Require(std::memcmp(again.data(), values.data(), n * sizeof(float)) == 0, "the same values");
}

void DecodeSomeBlocks(unsigned form, std::size_t n, std::span<const std::byte> bytes) {
  const BlockForm blocks{static_cast<BlockCode>(form % 3), 32};
  std::vector<float> aligned(bytes.size() / sizeof(float) + 1);
  if (!bytes.empty()) std::memcpy(aligned.data(), bytes.data(), bytes.size());
  std::vector<float> values(n);
  fuzz::Accepts(
      [&] {
        DecodeBlocks(blocks, std::as_bytes(std::span(aligned)).first(bytes.size()), values,
                     "blocks");
      },
      FailureKind::kComm);
}

}  // namespace
}  // namespace sparfuse

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  if (size < 3) return 0;
  const unsigned form = data[0];
  const std::size_t n = std::size_t{data[1]} + 256 * std::size_t{data[2]} + 1;
  const auto given = std::as_bytes(std::span(data, size)).subspan(3);
  // A buffer of exactly this size, so that the address sanitizer sees reads past it.
  const std::vector<std::byte> bytes(given.begin(), given.end());
  if (form < 128) {
    DecodeOneSelection(form, n, bytes);
  } else if (form < 192) {
    DecodeSomeExponents(n, bytes);
  } else {
    DecodeSomeBlocks(form, n, bytes);
  }
  return 0;
}

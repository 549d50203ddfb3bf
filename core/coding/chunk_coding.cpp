#include "core/coding/chunk_coding.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {
namespace {

constexpr unsigned kIndexBits = 12;
constexpr unsigned kCodeBits = 2;
constexpr std::size_t kLevelBytes = 4 * sizeof(float);

constexpr std::size_t BitBytes(std::size_t count, unsigned width) {
  return (count * width + 7) / 8;
}

// Writes BitBytes: value(i) in `width` bits, at most 16.
std::byte* PackBits(std::size_t count, unsigned width, std::byte* to, const auto& value) {
  std::uint32_t waiting = 0;
  unsigned bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    waiting |= static_cast<std::uint32_t>(value(i)) << bits;
    for (bits += width; bits >= 8; bits -= 8, waiting >>= 8) {
      to = StoreBytes(to, static_cast<std::uint8_t>(waiting));
    }
  }
  return bits > 0 ? StoreBytes(to, static_cast<std::uint8_t>(waiting)) : to;
}

// Calls take(i, value) for each value. Throws if the padding of the last byte is not zero.
void UnpackBits(std::span<const std::byte> from, std::size_t count, unsigned width,
                const std::string& what, const auto& take) {
  std::uint32_t waiting = 0;
  unsigned bits = 0;
  auto byte = from.begin();
  for (std::size_t i = 0; i < count; ++i) {
    for (; bits < width; bits += 8) waiting |= std::to_integer<std::uint32_t>(*byte++) << bits;
    take(i, waiting & ((1u << width) - 1));
    waiting >>= width;
    bits -= width;
  }
  if (waiting != 0) MalformedPayload("bits after the ", what, " are set; expected zeros");
}

std::size_t ChunksOf(PayloadCoding coding, std::size_t n) {
  return (n + coding.chunk - 1) / coding.chunk;
}

std::size_t SizeOfChunk(PayloadCoding coding, std::size_t chunk, std::size_t n) {
  return std::min<std::size_t>(coding.chunk, n - chunk * coding.chunk);
}

std::size_t BytesOfLevels(PayloadCoding coding, std::size_t n) {
  return kLevelBytes * (coding.codes_by_chunk ? ChunksOf(coding, n) : 1);
}

std::size_t BytesOfValues(PayloadCoding coding, std::size_t count, std::size_t n) {
  if (coding.values == ValueCoding::kF32) return count * sizeof(float);
  if (coding.values == ValueCoding::kF16) return count * sizeof(std::uint16_t);
  return count == 0 ? 0 : BitBytes(count, kCodeBits) + BytesOfLevels(coding, n);
}

// Calls body(begin, end) for the elements with levels of their own: of each chunk, or all.
void ForScopes(PayloadCoding coding, std::span<const std::uint32_t> indices, std::size_t n,
               const auto& body) {
  if (!coding.codes_by_chunk) return body(0, indices.size());
  std::size_t begin = 0;
  for (std::size_t c = 0; c < ChunksOf(coding, n); ++c) {
    std::size_t end = begin;
    while (end < indices.size() && indices[end] / coding.chunk == c) ++end;
    body(begin, end);
    begin = end;
  }
}

std::size_t BytesOfCounts(PayloadCoding coding, std::size_t n) {
  return coding.density > 0 ? 0 : sizeof(std::uint16_t) * ChunksOf(coding, n);
}

std::byte* StoreChunkValues(PayloadCoding coding, std::span<const std::uint32_t> indices,
                            std::span<float> values, std::span<float> residual, std::size_t n,
                            std::byte* to) {
  if (coding.values != ValueCoding::kCodes4) {
    RoundToCoding({coding.values}, indices, values, residual);
    // StoreValues writes a multiple of four bytes; the last ones may be padding.
    std::vector<std::byte> stored(ValueBytes(coding.values, values.size()));
    StoreValues(coding.values, values, stored.data());
    return std::copy_n(stored.data(), BytesOfValues(coding, values.size(), n), to);
  }
  if (values.empty()) return to;
  std::vector<std::uint8_t> codes(values.size());
  std::vector<std::array<float, 4>> levels;
  ForScopes(coding, indices, n, [&](std::size_t begin, std::size_t end) {
    auto& of = levels.emplace_back();
    if (begin == end) return;
    const std::span<std::uint8_t> own = std::span(codes).subspan(begin, end - begin);
    of = Codes4(values.subspan(begin, end - begin), own);
    for (std::size_t i = begin; i < end; ++i) {
      const float level = of[codes[i]];
      if (!residual.empty()) residual[indices[i]] += values[i] - level;
      values[i] = level;
    }
  });
  to = PackBits(codes.size(), kCodeBits, to, [&](std::size_t i) { return codes[i]; });
  for (const auto& each : levels) to = StoreBytes(to, each);
  return to;
}

// indices: of the whole range.
void ReadChunkValues(PayloadCoding coding, std::span<const std::byte> from,
                     std::span<const std::uint32_t> indices, std::size_t n,
                     std::span<float> values) {
  if (coding.values != ValueCoding::kCodes4) {
    std::vector<std::byte> stored(ValueBytes(coding.values, values.size()));
    std::ranges::copy(from, stored.begin());
    return ReadValues(coding.values, stored, 0, values);
  }
  if (values.empty()) return;
  const std::size_t at = from.size() - BytesOfLevels(coding, n);
  std::vector<std::uint8_t> codes(values.size());
  UnpackBits(
      from.first(at), values.size(), kCodeBits, "codes",
      [&](std::size_t i, std::uint32_t code) { codes[i] = static_cast<std::uint8_t>(code); });
  const std::byte* next = from.data() + at;
  ForScopes(coding, indices, n, [&](std::size_t begin, std::size_t end) {
    const auto levels = LoadBytes<std::array<float, 4>>(next);
    for (std::size_t code = 0; code < levels.size(); ++code) {
      if (std::isfinite(levels[code]) && (begin < end || levels[code] == 0)) continue;
      const auto number = static_cast<std::size_t>(next - from.data() - at) / sizeof(float) + code;
      MalformedPayload("level ", number,
                       (begin < end ? " is not finite" : " is of no element, and is not 0"));
    }
    for (std::size_t i = begin; i < end; ++i) values[i] = levels[codes[i]];
    next += kLevelBytes;
  });
}

}  // namespace

std::size_t ChunkCodedBytes(PayloadCoding coding, std::size_t count, std::size_t n) {
  assert(coding.indices == IndexCoding::kU12 && coding.chunk > 0);
  const std::size_t bytes =
      BytesOfCounts(coding, n) + BitBytes(count, kIndexBits) + BytesOfValues(coding, count, n);
  return (bytes + 3) / 4 * 4;
}

std::array<float, 4> Codes4(std::span<const float> values, std::span<std::uint8_t> codes) {
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const float value : values) mean += value;
  mean /= count;
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  double scale = 6 * std::sqrt(squares / (count - 1)) / 4;  // not a number for one value
  if (!(scale > 0) || !std::isfinite(scale)) scale = 1;
  std::array<double, 4> sums{};
  std::array<std::size_t, 4> counts{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double step = std::clamp(std::nearbyint((values[i] - mean) / scale) + 2, 0.0, 3.0);
    codes[i] = static_cast<std::uint8_t>(step);
    sums[codes[i]] += values[i];
    ++counts[codes[i]];
  }
  std::array<float, 4> levels{};
  for (std::size_t code = 0; code < levels.size(); ++code) {
    if (counts[code] > 0) {
      levels[code] = static_cast<float>(sums[code] / static_cast<double>(counts[code]));
    }
  }
  return levels;
}

std::size_t EncodeChunks(PayloadCoding coding, std::span<const std::uint32_t> indices,
                         std::span<float> values, std::span<float> residual, std::size_t n,
                         std::span<std::byte> out) {
  assert(indices.size() == values.size() && (residual.empty() || residual.size() == n));
  const std::size_t bytes = ChunkCodedBytes(coding, indices.size(), n);
  if (out.size() < bytes) {
    SPARFUSE_THROW(kInternal, "a selection of ", indices.size(), " of ", n,
                   " elements in chunks has room for ", out.size(), " bytes; expected ", bytes);
  }
  std::byte* to = out.data();
  std::size_t begin = 0;
  for (std::size_t c = 0; c < ChunksOf(coding, n); ++c) {
    const std::size_t size = SizeOfChunk(coding, c, n);
    std::size_t end = begin;
    while (end < indices.size() && indices[end] < c * coding.chunk + size) ++end;
    if (coding.density == 0) {
      to = StoreBytes(to, static_cast<std::uint16_t>(end - begin));
    } else if (end - begin != KeptCount(size, coding.density)) {
      SPARFUSE_THROW(kInternal, end - begin, " elements are selected of chunk ", c, "; expected ",
                     KeptCount(size, coding.density));
    }
    begin = end;
  }
  to = PackBits(indices.size(), kIndexBits, to,
                [&](std::size_t i) { return indices[i] % coding.chunk; });
  to = StoreChunkValues(coding, indices, values, residual, n, to);
  std::fill(to, out.data() + bytes, std::byte{0});
  return bytes;
}

DecodedSelection DecodeChunks(PayloadCoding coding, std::span<const std::byte> bytes, std::size_t n,
                              std::span<std::uint32_t> indices, std::span<float> values) {
  assert(indices.size() == values.size());
  const std::size_t chunks = ChunksOf(coding, n);
  const std::size_t count_bytes = BytesOfCounts(coding, n);
  const auto require = [&](std::size_t expected) {
    if (bytes.size() >= expected) return;
    MalformedPayload(bytes.size(), " bytes; expected at least ", expected);
  };
  require(count_bytes);
  const auto count_of = [&](std::size_t c) -> std::size_t {
    if (coding.density > 0) return KeptCount(SizeOfChunk(coding, c, n), coding.density);
    return LoadBytes<std::uint16_t>(bytes.data() + c * sizeof(std::uint16_t));
  };
  std::size_t count = 0;
  for (std::size_t c = 0; c < chunks; ++c) {
    const std::size_t size = SizeOfChunk(coding, c, n);
    if (count_of(c) > size) {
      MalformedPayload("chunk ", c, " has ", count_of(c), " elements; expected at most ", size);
    }
    count += count_of(c);
    if (count > indices.size()) {
      MalformedPayload(count, " elements; expected at most ", indices.size());
    }
  }
  const std::size_t total = ChunkCodedBytes(coding, count, n);
  require(total);
  indices = indices.first(count);
  values = values.first(count);
  const auto coded = bytes.first(total).subspan(count_bytes);
  const std::size_t index_bytes = BitBytes(count, kIndexBits);
  UnpackBits(coded.first(index_bytes), count, kIndexBits, "indices",
             [&](std::size_t i, std::uint32_t index) { indices[i] = index; });
  std::size_t at = 0;
  for (std::size_t c = 0; c < chunks; ++c) {
    const std::size_t size = SizeOfChunk(coding, c, n);
    const auto of_chunk = indices.subspan(at, count_of(c));
    for (std::size_t i = 0; i < of_chunk.size(); ++i) {
      if (of_chunk[i] >= size || (i > 0 && of_chunk[i] <= of_chunk[i - 1])) {
        MalformedPayload("index ", i, " of chunk ", c, " is ", of_chunk[i],
                         "; expected increasing indices below ", size);
      }
    }
    for (std::uint32_t& index : of_chunk) index += static_cast<std::uint32_t>(c * coding.chunk);
    at += of_chunk.size();
  }
  const std::size_t value_bytes = BytesOfValues(coding, count, n);
  ReadChunkValues(coding, coded.subspan(index_bytes, value_bytes), indices, n, values);
  for (const std::byte padding : coded.subspan(index_bytes + value_bytes)) {
    if (padding != std::byte{0}) MalformedPayload("its padding is not zero");
  }
  return {{indices, values}, total};
}

}  // namespace sparfuse

// Codes a selection by chunks of its range: indices within their chunk in 12 bits each, and values
// in two bits beside four levels, or as floats. With 2-bit values an element takes 14 bits.
//
// A coded selection, little-endian, without a header: the receiver knows its coding. A string of
// bits has its first value in the lowest bits of its first byte, and is padded with zeros to a
// byte.
//   counts   u16 for each chunk; only if they vary
//   indices  12 bits each, within the chunk, increasing
//   values   f32 or f16 each; or codes of 2 bits each, and then, unless there are none, the four
//            levels that they stand for as f32; with codes by chunk four levels for each chunk,
//            zeros for a chunk without elements
// padded with zeros to a multiple of 4 bytes.
//
// Source: A. Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo", arXiv
// 2508.15706, and the code that was published with it (which sends each code in a byte).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/coding/payload_coding.hpp"
#include "core/payload/payload.hpp"

namespace sparfuse {

inline constexpr std::size_t kMostOfChunk = 4096;  // 12 bits distinguish so many

// Bytes of `count` elements of a range of n. coding.indices is kU12, as for all that follows.
std::size_t ChunkCodedBytes(PayloadCoding coding, std::size_t count, std::size_t n);

// Computes the values' codes, each 0 to 3, and returns the level of each code. With mean m and
// deviation sd (of K - 1) of all K values, scale = 6 sd / 4 (1 if that is 0 or infinite):
//
//   code = (v - m) / scale rounded to even, plus 2, at least 0 and at most 3
//   level[code] = the mean of the values with this code, 0 if there is none
//
// codes: [values.size()].
std::array<float, 4> Codes4(std::span<const float> values, std::span<std::uint8_t> codes);

// Encodes a selection; returns the bytes written. `values` become the values that a receiver
// decodes. A residual that is not empty receives the coding errors at their indices.
//
//   indices   increasing, below n; if the coding has a density, KeptCount of each chunk.
//   residual  [n] or empty.
//   out       at least ChunkCodedBytes.
//
// Throws Error{kInternal} if `out` is too small or a chunk has another number of elements.
std::size_t EncodeChunks(PayloadCoding coding, std::span<const std::uint32_t> indices,
                         std::span<float> values, std::span<float> residual, std::size_t n,
                         std::span<std::byte> out);

struct DecodedSelection {
  SparsePayload payload;
  std::size_t bytes = 0;  // of the selection; later bytes were not read
};
// Decodes the selection that `bytes` begin with into the front of `indices` and `values`, of equal
// size. Any bytes are safe: bytes that EncodeChunks cannot have written are an Error{kComm} that
// says what is wrong and where. No access is out of bounds.
DecodedSelection DecodeChunks(PayloadCoding coding, std::span<const std::byte> bytes, std::size_t n,
                              std::span<std::uint32_t> indices, std::span<float> values);

}  // namespace sparfuse

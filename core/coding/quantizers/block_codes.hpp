// Encodes floats in blocks that share a scale, as integers of 8 or 4 bits or as fp8 (E4M3).
//
// Wire form: the blocks' scales as float32, then the codes. int4 has two codes per byte, in two's
// complement, the lower index in the low half. Padded with zeros to a multiple of four bytes.
//
//   scale = max|x| / top, top = 127 (int8), 7 (int4), 448 (fp8); of zeros 0, and all decode to 0
//   code  = x / scale, rounded to nearest, ties to even, and no further from 0 than top; or
//           rounded at random to one of its two neighbours, with the right expectation
//   x     ~ code * scale
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/random_stream.hpp"

namespace sparfuse {

// How values become codes. Draw i of the stream, in 24 bits, rounds element `first` + i.
struct BlockRounding {
  const RandomStream* stream = nullptr;  // null: to nearest
  std::uint64_t first = 0;

  // Uniform in [0, 1).
  float Draw(std::size_t i) const {
    return static_cast<float>(stream->At(first + i) >> 40) * 0x1p-24f;
  }
};

enum class BlockCode : std::uint8_t { kInt8, kInt4, kFp8 };

struct BlockForm {
  BlockCode code = BlockCode::kInt8;
  std::size_t block = 256;  // elements
  bool stochastic = false;  // rounded at random

  std::size_t BlocksOf(std::size_t n) const { return (n + block - 1) / block; }
  // Bytes of the codes of n elements, without padding.
  std::size_t CodeBytes(std::size_t n) const { return code == BlockCode::kInt4 ? (n + 1) / 2 : n; }
  std::size_t CodesAt(std::size_t n) const { return sizeof(float) * BlocksOf(n); }
  std::size_t Bytes(std::size_t n) const { return (CodesAt(n) + CodeBytes(n) + 3) / 4 * 4; }
};

// The scale of one block; finite for finite values.
float BlockScale(BlockCode code, std::span<const float> values);
// Encodes one block. codes: CodeBytes(values.size()), overwritten; the caller writes the padding.
void EncodeBlock(BlockCode code, std::span<const float> values, float scale, std::byte* codes,
                 BlockRounding rounding = {});
// out[i] = decoded value. Returns false if EncodeBlock never writes one of the codes.
bool DecodeBlock(BlockCode code, const std::byte* codes, float scale, std::span<float> out);

// Encodes all blocks of `values`. out: form.Bytes(values.size()), 4-byte aligned. stream: draws for
// a form that is stochastic.
void EncodeBlocks(const BlockForm& form, std::span<const float> values, std::span<std::byte> out,
                  const RandomStream* stream = nullptr);
// Throws Error{kComm} naming `what` if EncodeBlocks cannot have written the bytes.
void DecodeBlocks(const BlockForm& form, std::span<const std::byte> payload, std::span<float> out,
                  std::string_view what);

// Rounds to E4M3 without infinities: to nearest, ties to even, saturating beyond 448.
std::uint8_t Fp8Of(float value);
// Rounds to one of the two neighbours: to the one further from 0 if `draw`, of [0, 1), is below the
// distance from the nearer one in steps.
std::uint8_t Fp8Of(float value, float draw);
// Decodes a code that is no NaN (0x7f, 0xff).
float OfFp8(std::uint8_t code);

}  // namespace sparfuse

// Encodes floats in blocks that share a scale, as integers of 8 or 4 bits or as fp8 (E4M3).
//
// Wire form: the blocks' scales as float32, then the codes; of int4 two a byte, the lower index in
// the low half, two's complement. Padded with zeros to four bytes.
//
//   scale = max|x| / top, top = 127 (int8), 7 (int4), 448 (fp8); of zeros 0, and all decode to 0
//   code  = x / scale, rounded to nearest, ties to even, and no further from 0 than top
//   x     ~ code * scale
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sparfuse {

enum class BlockCode : std::uint8_t { kInt8, kInt4, kFp8 };

struct BlockForm {
  BlockCode code = BlockCode::kInt8;
  std::size_t block = 256;  // elements

  std::size_t BlocksOf(std::size_t n) const { return (n + block - 1) / block; }
  // Bytes of the codes of n elements, without padding.
  std::size_t CodeBytes(std::size_t n) const { return code == BlockCode::kInt4 ? (n + 1) / 2 : n; }
  std::size_t CodesAt(std::size_t n) const { return sizeof(float) * BlocksOf(n); }
  std::size_t Bytes(std::size_t n) const { return (CodesAt(n) + CodeBytes(n) + 3) / 4 * 4; }
};

// The scale of one block; finite for finite values.
float BlockScale(BlockCode code, std::span<const float> values);
// Its codes. codes: CodeBytes(values.size()), which are overwritten; padding is the caller's.
void EncodeBlock(BlockCode code, std::span<const float> values, float scale, std::byte* codes);
// out[i] = decoded value. Returns false where a code is none of EncodeBlock's.
bool DecodeBlock(BlockCode code, const std::byte* codes, float scale, std::span<float> out);

// All blocks of `values`. out: form.Bytes(values.size()), 4-byte aligned.
void EncodeBlocks(const BlockForm& form, std::span<const float> values, std::span<std::byte> out);
// Throws Error{kComm} naming `what` where the bytes cannot have come from EncodeBlocks.
void DecodeBlocks(const BlockForm& form, std::span<const std::byte> payload, std::span<float> out,
                  std::string_view what);

// E4M3 without infinities: to nearest, ties to even, beyond 448 saturating.
std::uint8_t Fp8Of(float value);
// Of a code that is no NaN (0x7f, 0xff).
float OfFp8(std::uint8_t code);

}  // namespace sparfuse

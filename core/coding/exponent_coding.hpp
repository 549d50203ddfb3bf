// Codes floats without loss: nearby values have so few exponents that a few bits distinguish them.
// Every bit pattern is restored: NaNs with their payloads, -0, infinities.
//
// Blocks of kExponentBlock values, the last one shorter, one after another, little-endian:
//   header     the largest exponent byte, the width of a code in bits (0 to 8), and as u16 the
//              number of escaped exponents
//   mantissas  three bytes per value: the sign in the highest bit, and 23 bits
//   codes      largest exponent - exponent, `width` bits each, the first in the lowest bits, padded
//              with zeros to a byte; all ones: escaped. Of width 8 the exponents themselves
//   escaped    the escaped exponents, a byte each
// padded with zeros to a multiple of 4 bytes.
//
// Width 0 means that all exponents are equal. Else the width is the one with the fewest bytes of
// codes and escaped exponents, and among equals the least. So values have one encoding. Gaussian
// values take 27.3 bits each, random bits 32.03.
//
// Source: Y. Liu et al., ZipCCL, arXiv 2604.27844 (lossless coding of collectives' payloads). The
// format is this project's.
#pragma once

#include <cstddef>
#include <span>

namespace sparfuse {

inline constexpr std::size_t kExponentBlock = 1024;

// The most that EncodeExponents writes for n values.
std::size_t ExponentBytesBound(std::size_t n);

// Returns the bytes written. out: at least ExponentBytesBound(values.size()).
std::size_t EncodeExponents(std::span<const float> values, std::span<std::byte> out);

// Restores the values, bit for bit. Any bytes are safe: bytes that are not of this form, or not of
// values.size() values, are an Error{kComm} that names `what` and says what is wrong.
void DecodeExponents(std::span<const std::byte> bytes, std::span<float> values, const char* what);

}  // namespace sparfuse

// Declares the inner loops of the quantizers, of payload coding and of PowerSGD, one table per
// instruction set. All tables give equal results. Arrays of one call do not overlap.
//
// This header is included by files that are compiled for one instruction set: it must not bring in
// inline functions that other files share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparfuse {

enum class Isa : std::uint8_t;

inline constexpr std::uint16_t kHalfMax = 0x7bff;       // the bits of 65504
inline constexpr std::uint16_t kHalfInfinity = 0x7c00;  // codes without sign >= this: not finite
inline constexpr std::size_t kLowRankRows = 4;          // rows per call of a low-rank kernel

struct QuantizeKernels {
  // codes[i] = bits of x[i] as a half: to nearest, ties to even, saturated beyond 65504. x is
  // finite. A residual, if given, is the input (x == residual), and becomes x - decoded.
  void (*half_encode)(const float* x, float* residual, std::size_t n, std::uint16_t* codes);
  // out[i] = decoded, or out[i] += decoded; meaningless if the code is an infinity or a NaN. Return
  // the largest code without its sign.
  std::uint32_t (*half_decode)(const std::uint16_t* codes, std::size_t n, float* out);
  std::uint32_t (*half_add)(const std::uint16_t* codes, std::size_t n, float* out);

  // codes[i] = sign(x) * (floor(y) + [u < y - floor(y)]), y = min(|x[i]| / step, levels). u, a
  // fraction, is the upper 24 bits of half (first + i) % 2 of number (first + i) / 2 of the
  // RandomStream with this key. step > 0, first even. The residual as in half_encode.
  void (*level_encode)(const float* x, float* residual, std::size_t n, float step, float levels,
                       std::uint64_t key, std::uint64_t first, std::int8_t* codes);
  void (*level_add)(const std::int8_t* codes, std::size_t n, float step, float* out);

  // Bit i % 32 of words[i / 32] is x[i] >= 0; the remaining bits of the last word are 0.
  void (*sign_pack)(const float* x, std::size_t n, std::uint32_t* words);
  // residual[i] -= residual[i] >= 0 ? scale : -scale.
  void (*sign_keep)(float* residual, std::size_t n, float scale);
  void (*sign_add)(const std::uint32_t* words, std::size_t n, float scale, float* out);

  void (*scale)(float* x, std::size_t n, float factor);

  // The matrices of PowerSGD: m has `rows` <= kLowRankRows rows of `cols` elements, `stride` apart;
  // q has `rank` rows of `cols` elements, q_stride apart.
  // sums[i * rank + c] += <row i of m, row c of q>
  void (*row_dots)(const float* m, std::size_t stride, std::size_t rows, std::size_t cols,
                   const float* q, std::size_t q_stride, std::size_t rank, double* sums);
  // Row c of q += sum over rows i of p[c * p_stride + i] * row i of m
  void (*add_rows)(const float* m, std::size_t stride, std::size_t rows, std::size_t cols,
                   const float* p, std::size_t p_stride, std::size_t rank, float* q,
                   std::size_t q_stride);
  // out = sum over c of p[c * p_stride] * row c of q; residual -= out if there is one.
  void (*combine_rows)(const float* p, std::size_t p_stride, const float* q, std::size_t q_stride,
                       std::size_t rank, std::size_t cols, float* out, float* residual);
};

const QuantizeKernels& QuantizeKernelsFor(Isa isa);

extern const QuantizeKernels kQuantizeKernelsPortable;
#if defined(__x86_64__)
extern const QuantizeKernels kQuantizeKernelsAvx2;
extern const QuantizeKernels kQuantizeKernelsAvx512;
#endif

}  // namespace sparfuse

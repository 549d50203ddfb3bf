// Selects with NEON: makes 64-bit masks, then finds their bits without a branch per element.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/scan/simd/mask_neon.inc"
#include "core/sparsify/scan/simd/select_kernels_loops.inc"
#include "core/sparsify/scan/simd/select_kernels_scalar.inc"
#include "core/sparsify/scan/simd/select_kernels_scan.inc"
#include "core/sparsify/scan/simd/select_kernels_statistics.inc"

template <Sums kSums, bool kPrefetch>
std::size_t ScanImpl(const float* gradient, const float* residual, float* sum, std::size_t n,
                     std::uint32_t lo, std::uint32_t zero_from, std::uint16_t* offsets) {
  const uint32x4_t bound = vdupq_n_u32(lo);
  const uint32x4_t zero = vdupq_n_u32(zero_from);
  const uint32x4_t abs = vdupq_n_u32(kAbsMask);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint32x4_t kept[16];
    for (std::size_t v = 0; v < 16; ++v) {
      const std::size_t at = i + 4 * v;
      if (kPrefetch && v % 4 == 0) {
        __builtin_prefetch(gradient + at + kPrefetchFloats);
        if (kSums != Sums::kNone) __builtin_prefetch(residual + at + kPrefetchFloats);
      }
      float32x4_t x = vld1q_f32(gradient + at);
      if (kSums != Sums::kNone) x = vaddq_f32(x, vld1q_f32(residual + at));
      const uint32x4_t bits = vreinterpretq_u32_f32(x);
      const uint32x4_t keys = vandq_u32(bits, abs);
      if (kSums == Sums::kKept) vst1q_f32(sum + at, x);
      if (kSums == Sums::kApart) {
        vst1q_f32(sum + at, vreinterpretq_f32_u32(vbicq_u32(bits, vcgeq_u32(keys, zero))));
      }
      kept[v] = vcgeq_u32(keys, bound);
    }
    const std::uint64_t mask = MaskOf(kept);
    Flatten(mask, static_cast<std::uint32_t>(i), offsets + count);
    count += static_cast<std::size_t>(__builtin_popcountll(mask));
  }
  return ScanRest<kSums>(gradient, residual, sum, i, n, lo, zero_from, offsets, count);
}

std::size_t CountAtLeast(const std::uint32_t* keys, std::size_t n, std::uint32_t lo) {
  const uint32x4_t bound = vdupq_n_u32(lo);
  std::size_t count = 0;
  std::size_t i = 0;
  while (i + 16 <= n) {
    // Each lane counts down up to twice a round; 2^20 rounds cannot overflow it.
    const std::size_t rounds = (n - i) / 16 < (1u << 20) ? (n - i) / 16 : (1u << 20);
    uint32x4_t sum = vdupq_n_u32(0);
    uint32x4_t sum2 = vdupq_n_u32(0);
    for (std::size_t r = 0; r < rounds; ++r, i += 16) {
      sum = vsubq_u32(sum, vcgeq_u32(vld1q_u32(keys + i), bound));
      sum2 = vsubq_u32(sum2, vcgeq_u32(vld1q_u32(keys + i + 4), bound));
      sum = vsubq_u32(sum, vcgeq_u32(vld1q_u32(keys + i + 8), bound));
      sum2 = vsubq_u32(sum2, vcgeq_u32(vld1q_u32(keys + i + 12), bound));
    }
    count += vaddlvq_u32(vaddq_u32(sum, sum2));
  }
  for (; i < n; ++i) count += static_cast<std::size_t>(keys[i] >= lo);
  return count;
}

}  // namespace

const SelectKernels kSelectKernelsNeon = {
    Scan,    ScanApart,   Positions,         Gather,       GatherSums,  Clear,
    Put,     Add,         MakeKeys,          CountAtLeast, KeysInRange, Emit,
    Measure, MeasureTail, MultiplyMantissas, CountReaching};

}  // namespace sparfuse
#endif

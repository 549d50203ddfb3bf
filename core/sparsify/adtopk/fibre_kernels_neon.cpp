// Scans with NEON: makes masks of 64 elements, then takes their bits one by one; few are set.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "core/sparsify/adtopk/fibre_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/adtopk/fibre_kernels.inc"
#include "core/sparsify/scan/simd/mask_neon.inc"

template <bool kResidual>
std::size_t ScanImpl(const FibreScan& s, std::uint32_t* largest) {
  const uint32x4_t abs = vdupq_n_u32(kAbsMask);
  const std::size_t turn = kScanLanes % s.period;
  uint32x4_t top = vdupq_n_u32(0);
  std::size_t count = 0;
  std::size_t at = 0;
  std::size_t i = 0;
  for (; i + kScanLanes <= s.n; i += kScanLanes) {
    uint32x4_t kept[16];
    for (std::size_t v = 0; v < 16; ++v) {
      const std::size_t j = 4 * v;
      if (s.ahead != 0 && v % 4 == 0) {
        __builtin_prefetch(s.gradient + i + j + s.ahead);
        if (kResidual) __builtin_prefetch(s.residual + i + j + s.ahead, 1);
      }
      float32x4_t x = vld1q_f32(s.gradient + i + j);
      if (kResidual) {
        x = vaddq_f32(x, vld1q_f32(s.residual + i + j));
        vst1q_f32(s.residual + i + j, x);
      }
      const uint32x4_t key = vandq_u32(vreinterpretq_u32_f32(x), abs);
      top = vmaxq_u32(top, key);
      kept[v] = vcgeq_u32(key, vld1q_u32(s.bounds + at + j));
    }
    const float* const x = kResidual ? s.residual : s.gradient;
    for (std::uint64_t mask = MaskOf(kept); mask != 0; mask &= mask - 1) {
      const std::size_t found = i + static_cast<std::size_t>(__builtin_ctzll(mask));
      s.indices[count] = s.base + static_cast<std::uint32_t>(found);
      s.values[count] = x[found];
      ++count;
    }
    at += turn;
    at = at >= s.period ? at - s.period : at;
  }
  const std::uint32_t highest = vmaxvq_u32(top);
  *largest = highest > *largest ? highest : *largest;
  return ScanRest(s, i, at, count, largest);
}

std::size_t Scan(const FibreScan& s, std::uint32_t* largest) {
  return s.residual == nullptr ? ScanImpl<false>(s, largest) : ScanImpl<true>(s, largest);
}

}  // namespace

const FibreKernels kFibreKernelsNeon = {Scan, Rank};

}  // namespace sparfuse
#endif

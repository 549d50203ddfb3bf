// Scans with AVX2: makes masks of 64 elements, then takes their bits one by one; few are set.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/sparsify/adtopk/fibre_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/adtopk/fibre_kernels.inc"

template <bool kResidual>
std::size_t ScanImpl(const FibreScan& s, std::uint32_t* largest) {
  const __m256i abs = _mm256_set1_epi32(static_cast<int>(kAbsMask));
  const std::size_t turn = kScanLanes % s.period;
  __m256i top = _mm256_setzero_si256();
  std::size_t count = 0;
  std::size_t at = 0;
  std::size_t i = 0;
  for (; i + kScanLanes <= s.n; i += kScanLanes) {
    std::uint64_t mask = 0;
    for (std::size_t j = 0; j < kScanLanes; j += 8) {
      if (s.ahead != 0 && j % 16 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(s.gradient + i + j + s.ahead), _MM_HINT_T0);
        if (kResidual) {
          _mm_prefetch(reinterpret_cast<const char*>(s.residual + i + j + s.ahead), _MM_HINT_T0);
        }
      }
      __m256 x = _mm256_loadu_ps(s.gradient + i + j);
      if (kResidual) {
        x = _mm256_add_ps(x, _mm256_loadu_ps(s.residual + i + j));
        _mm256_storeu_ps(s.residual + i + j, x);
      }
      const __m256i key = _mm256_and_si256(_mm256_castps_si256(x), abs);
      top = _mm256_max_epi32(top, key);  // keys and bounds are below 2^31: signed is right
      const __m256i bound = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s.bounds + at + j));
      const __m256i below = _mm256_cmpgt_epi32(bound, key);
      const auto bits = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(below)));
      mask |= static_cast<std::uint64_t>(bits ^ 0xffu) << j;
    }
    const float* const x = kResidual ? s.residual : s.gradient;
    for (; mask != 0; mask = _blsr_u64(mask)) {
      const std::size_t found = i + _tzcnt_u64(mask);
      s.indices[count] = s.base + static_cast<std::uint32_t>(found);
      s.values[count] = x[found];
      ++count;
    }
    at += turn;
    at = at >= s.period ? at - s.period : at;
  }
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), top);
  for (const std::uint32_t lane : lanes) *largest = lane > *largest ? lane : *largest;
  return ScanRest(s, i, at, count, largest);
}

std::size_t Scan(const FibreScan& s, std::uint32_t* largest) {
  return s.residual == nullptr ? ScanImpl<false>(s, largest) : ScanImpl<true>(s, largest);
}

}  // namespace

const FibreKernels kFibreKernelsAvx2 = {Scan, Rank};

}  // namespace sparfuse
#endif

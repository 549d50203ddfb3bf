// Selects with AVX2: makes 64-bit masks, then finds their bits without a branch per element.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/scan/simd/select_kernels_loops.inc"
#include "core/sparsify/scan/simd/select_kernels_scalar.inc"
#include "core/sparsify/scan/simd/select_kernels_scan.inc"
#include "core/sparsify/scan/simd/select_kernels_statistics.inc"

template <bool kResidual>
inline std::uint64_t Mask8(const float* gradient, float* residual, std::size_t i, __m256i below) {
  __m256 x = _mm256_loadu_ps(gradient + i);
  if (kResidual) {
    x = _mm256_add_ps(x, _mm256_loadu_ps(residual + i));
    _mm256_storeu_ps(residual + i, x);
  }
  const __m256i key =
      _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(static_cast<int>(kAbsMask)));
  const __m256i kept = _mm256_cmpgt_epi32(key, below);  // keys are below 2^31: signed is right
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(kept)));
}

template <bool kResidual, bool kPrefetch>
std::size_t ScanImpl(const float* gradient, float* residual, std::size_t n, std::uint32_t lo,
                     std::uint16_t* offsets) {
  const __m256i below = _mm256_set1_epi32(static_cast<int>(lo) - 1);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    std::uint64_t mask = 0;
    for (std::size_t j = 0; j < 64; j += 8) {
      if (kPrefetch && j % 16 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(gradient + i + j + kPrefetchFloats),
                     _MM_HINT_T0);
        if (kResidual) {
          _mm_prefetch(reinterpret_cast<const char*>(residual + i + j + kPrefetchFloats),
                       _MM_HINT_T0);
        }
      }
      mask |= Mask8<kResidual>(gradient, residual, i + j, below) << j;
    }
    Flatten(mask, static_cast<std::uint32_t>(i), offsets + count);
    count += static_cast<std::size_t>(_mm_popcnt_u64(mask));
  }
  return ScanRest<kResidual>(gradient, residual, i, n, lo, offsets, count);
}

std::size_t CountAtLeast(const std::uint32_t* keys, std::size_t n, std::uint32_t lo) {
  const __m256i below = _mm256_set1_epi32(static_cast<int>(lo) - 1);
  std::size_t count = 0;
  std::size_t i = 0;
  while (i + 32 <= n) {
    // Each lane counts down once a round; 2^20 rounds cannot overflow it.
    const std::size_t rounds = (n - i) / 32 < (1u << 20) ? (n - i) / 32 : (1u << 20);
    __m256i sum = _mm256_setzero_si256();
    __m256i sum2 = _mm256_setzero_si256();
    for (std::size_t r = 0; r < rounds; ++r, i += 32) {
      const auto* p = reinterpret_cast<const __m256i*>(keys + i);
      sum = _mm256_add_epi32(sum, _mm256_cmpgt_epi32(_mm256_loadu_si256(p), below));
      sum2 = _mm256_add_epi32(sum2, _mm256_cmpgt_epi32(_mm256_loadu_si256(p + 1), below));
      sum = _mm256_add_epi32(sum, _mm256_cmpgt_epi32(_mm256_loadu_si256(p + 2), below));
      sum2 = _mm256_add_epi32(sum2, _mm256_cmpgt_epi32(_mm256_loadu_si256(p + 3), below));
    }
    alignas(32) std::int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(sum, sum2));
    for (const std::int32_t lane : lanes) count += static_cast<std::size_t>(-lane);
  }
  for (; i < n; ++i) count += static_cast<std::size_t>(keys[i] >= lo);
  return count;
}

}  // namespace

const SelectKernels kSelectKernelsAvx2 = {Scan,         Gather,   Clear,        Put,
                                          Add,          MakeKeys, CountAtLeast, KeysInRange,
                                          Emit,         Measure,  MeasureTail,  MultiplyMantissas,
                                          CountReaching};

}  // namespace sparfuse
#endif

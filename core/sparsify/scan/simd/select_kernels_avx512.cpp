// Selects with AVX-512, VBMI2 included. Compaction goes through a register and a store of all of
// it: the compressing store to memory is microcoded on some machines and costs a hundred cycles
// there.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/scan/simd/mask_avx512.inc"
#include "core/sparsify/scan/simd/select_kernels_loops.inc"
#include "core/sparsify/scan/simd/select_kernels_scan.inc"
#include "core/sparsify/scan/simd/select_kernels_statistics.inc"

inline __m512i Keys16(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(kAbsMask)));
}

template <bool kPrefetch>
inline void Prefetch(const float* x) {
  if (kPrefetch) _mm_prefetch(reinterpret_cast<const char*>(x + kPrefetchFloats), _MM_HINT_T0);
}

template <Sums kSums, bool kPrefetch>
inline __m512i Load16(const float* gradient, const float* residual, float* sum, std::size_t i,
                      __m512i zero_from) {
  Prefetch<kPrefetch>(gradient + i);
  __m512 x = _mm512_loadu_ps(gradient + i);
  if (kSums != Sums::kNone) {
    Prefetch<kPrefetch>(residual + i);
    x = _mm512_add_ps(x, _mm512_loadu_ps(residual + i));
  }
  const __m512i keys = Keys16(x);
  if (kSums == Sums::kKept) _mm512_storeu_ps(sum + i, x);
  if (kSums == Sums::kApart) {
    _mm512_stream_ps(sum + i, _mm512_maskz_mov_ps(_mm512_cmplt_epu32_mask(keys, zero_from), x));
  }
  return keys;
}

template <Sums kSums, bool kPrefetch>
std::size_t ScanImpl(const float* gradient, const float* residual, float* sum, std::size_t n,
                     std::uint32_t lo, std::uint32_t zero_from, std::uint16_t* offsets) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(lo));
  const __m512i zero = _mm512_set1_epi32(static_cast<int>(zero_from));
  const __m512i positions = _mm512_load_si512(kPositions.at);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i a = Load16<kSums, kPrefetch>(gradient, residual, sum, i, zero);
    const __m512i b = Load16<kSums, kPrefetch>(gradient, residual, sum, i + 16, zero);
    const __m512i c = Load16<kSums, kPrefetch>(gradient, residual, sum, i + 32, zero);
    const __m512i d = Load16<kSums, kPrefetch>(gradient, residual, sum, i + 48, zero);
    if (count * 512 < i) {  // so few so far that most words have none: the branch pays
      const __m512i largest = _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
      if (_mm512_cmpge_epu32_mask(largest, bound) == 0) continue;
    }
    const std::uint64_t mask =
        Join(_mm512_cmpge_epu32_mask(a, bound), _mm512_cmpge_epu32_mask(b, bound),
             _mm512_cmpge_epu32_mask(c, bound), _mm512_cmpge_epu32_mask(d, bound));
    count += PackPositions(mask, positions, i, offsets + count);
  }
  return ScanRest<kSums>(gradient, residual, sum, i, n, lo, zero_from, offsets, count);
}

std::size_t CountAtLeast(const std::uint32_t* keys, std::size_t n, std::uint32_t lo) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(lo));
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __mmask16 a = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(keys + i), bound);
    const __mmask16 b = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(keys + i + 16), bound);
    const __mmask16 c = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(keys + i + 32), bound);
    const __mmask16 d = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(keys + i + 48), bound);
    count += static_cast<std::size_t>(_mm_popcnt_u64(Join(a, b, c, d)));
  }
  for (; i < n; ++i) count += static_cast<std::size_t>(keys[i] >= lo);
  return count;
}

std::size_t KeysInRange(const float* values, std::size_t n, std::uint32_t lo, std::uint32_t last,
                        std::uint32_t* keys, std::size_t* above) {
  const __m512i low = _mm512_set1_epi32(static_cast<int>(lo));
  const __m512i high = _mm512_set1_epi32(static_cast<int>(last));
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i key = Keys16(_mm512_loadu_ps(values + i));
    const __mmask16 over = _mm512_cmpgt_epu32_mask(key, high);
    const __mmask16 kept = static_cast<__mmask16>(_mm512_cmpge_epu32_mask(key, low) & ~over);
    *above += static_cast<std::size_t>(_mm_popcnt_u32(over));
    _mm512_storeu_si512(keys + count, _mm512_maskz_compress_epi32(kept, key));
    count += static_cast<std::size_t>(_mm_popcnt_u32(kept));
  }
  return KeysInRangeRest(values, i, n, lo, last, count, keys, above);
}

std::size_t Emit(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
                 std::size_t most, std::uint32_t* out_indices, float* out_values) {
  const __m512i low = _mm512_set1_epi32(static_cast<int>(lo));
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 16 <= n && count + 16 <= most; i += 16) {
    const __m512 x = _mm512_loadu_ps(values + i);
    const __mmask16 kept = _mm512_cmpge_epu32_mask(Keys16(x), low);
    _mm512_storeu_si512(out_indices + count,
                        _mm512_maskz_compress_epi32(kept, _mm512_loadu_si512(indices + i)));
    _mm512_storeu_ps(out_values + count, _mm512_maskz_compress_ps(kept, x));
    count += static_cast<std::size_t>(_mm_popcnt_u32(kept));
  }
  return EmitRest(indices, values, i, n, lo, count, most, out_indices, out_values);
}

void Put(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
         std::uint32_t end, bool zero, float* x) {
  const __m512i low = _mm512_set1_epi32(static_cast<int>(lo));
  const __m512i high = _mm512_set1_epi32(static_cast<int>(end));
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i key = Keys16(_mm512_loadu_ps(values + i));
    const __mmask16 put =
        _mm512_mask_cmplt_epu32_mask(_mm512_cmpge_epu32_mask(key, low), key, high);
    for (auto left = static_cast<std::uint32_t>(put); left != 0; left &= left - 1) {
      const std::size_t at = i + _tzcnt_u32(left);
      x[indices[at]] = zero ? 0.0f : values[at];
    }
  }
  PutRest(indices, values, i, n, lo, end, zero, x);
}

}  // namespace

const SelectKernels kSelectKernelsAvx512 = {
    Scan,    ScanApart,   Positions,         Gather,       GatherSums,  Clear,
    Put,     Add,         MakeKeys,          CountAtLeast, KeysInRange, Emit,
    Measure, MeasureTail, MultiplyMantissas, CountReaching};

}  // namespace sparfuse
#endif

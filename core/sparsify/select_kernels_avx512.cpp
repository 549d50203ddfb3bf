// AVX-512 kernels. Compaction goes through a register and a masked store: the compressing store to
// memory is microcoded on some machines and costs a hundred cycles there.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/sparsify/select_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/select_kernels_loops.inc"
#include "core/sparsify/select_kernels_scan.inc"
#include "core/sparsify/select_kernels_statistics.inc"

inline __m512i Keys16(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(kAbsMask)));
}

inline __mmask16 FirstLanes(std::size_t count) { return static_cast<__mmask16>((1u << count) - 1); }

// One word of four masks, the first lowest. Joined in mask registers: g++ 12 reloads a spilled
// 16-bit mask as 64 bits where it is widened in a general register, with whatever lies behind it.
inline std::uint64_t Join(__mmask16 a, __mmask16 b, __mmask16 c, __mmask16 d) {
  return _cvtmask64_u64(_mm512_kunpackd(_mm512_kunpackw(d, c), _mm512_kunpackw(b, a)));
}

template <bool kResidual>
inline __mmask16 Mask16(const float* gradient, float* residual, std::size_t i, __m512i lo) {
  _mm_prefetch(reinterpret_cast<const char*>(gradient + i + kPrefetchFloats), _MM_HINT_T0);
  __m512 x = _mm512_loadu_ps(gradient + i);
  if (kResidual) {
    _mm_prefetch(reinterpret_cast<const char*>(residual + i + kPrefetchFloats), _MM_HINT_T0);
    x = _mm512_add_ps(x, _mm512_loadu_ps(residual + i));
    _mm512_storeu_ps(residual + i, x);
  }
  return _mm512_cmpge_epu32_mask(Keys16(x), lo);
}

// For many bits: a compress a vector, whatever the count. Writes up to 16 entries past the last.
inline void FlattenMany(std::uint64_t mask, std::uint32_t base, std::uint16_t* at) {
  __m512i positions =
      _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(base)),
                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  for (int j = 0; j < 4; ++j) {
    const auto lanes = static_cast<__mmask16>(mask >> (16 * j));
    const __m512i packed = _mm512_maskz_compress_epi32(lanes, positions);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at),
                        _mm512_maskz_cvtepi32_epi16(0xffff, packed));
    at += _mm_popcnt_u32(lanes);
    positions = _mm512_add_epi32(positions, _mm512_set1_epi32(16));
  }
}

template <bool kResidual>
std::size_t ScanImpl(const float* gradient, float* residual, std::size_t n, std::uint32_t lo,
                     std::uint16_t* offsets) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(lo));
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __mmask16 a = Mask16<kResidual>(gradient, residual, i, bound);
    const __mmask16 b = Mask16<kResidual>(gradient, residual, i + 16, bound);
    const __mmask16 c = Mask16<kResidual>(gradient, residual, i + 32, bound);
    const __mmask16 d = Mask16<kResidual>(gradient, residual, i + 48, bound);
    const std::uint64_t mask = Join(a, b, c, d);
    // Above two a word so far, the four-at-a-time loop would be mispredicted too often.
    if (count * 32 > i) {
      FlattenMany(mask, static_cast<std::uint32_t>(i), offsets + count);
    } else {
      Flatten(mask, static_cast<std::uint32_t>(i), offsets + count);
    }
    count += static_cast<std::size_t>(_mm_popcnt_u64(mask));
  }
  return ScanRest<kResidual>(gradient, residual, i, n, lo, offsets, count);
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
  std::size_t larger = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = n - i < 16 ? FirstLanes(n - i) : static_cast<__mmask16>(0xffff);
    const __m512i key = Keys16(_mm512_maskz_loadu_ps(lanes, values + i));
    const __mmask16 over = _mm512_mask_cmpgt_epu32_mask(lanes, key, high);
    const __mmask16 kept =
        static_cast<__mmask16>(_mm512_mask_cmpge_epu32_mask(lanes, key, low) & ~over);
    larger += static_cast<std::size_t>(_mm_popcnt_u32(over));
    if (kept == 0) continue;
    const auto found = static_cast<std::size_t>(_mm_popcnt_u32(kept));
    _mm512_mask_storeu_epi32(keys + count, FirstLanes(found),
                             _mm512_maskz_compress_epi32(kept, key));
    count += found;
  }
  *above += larger;
  return count;
}

std::size_t Emit(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
                 std::uint32_t* out_indices, float* out_values) {
  const __m512i low = _mm512_set1_epi32(static_cast<int>(lo));
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = n - i < 16 ? FirstLanes(n - i) : static_cast<__mmask16>(0xffff);
    const __m512 x = _mm512_maskz_loadu_ps(lanes, values + i);
    const __mmask16 kept = _mm512_mask_cmpge_epu32_mask(lanes, Keys16(x), low);
    const auto found = static_cast<std::size_t>(_mm_popcnt_u32(kept));
    const __mmask16 front = FirstLanes(found);
    _mm512_mask_storeu_epi32(
        out_indices + count, front,
        _mm512_maskz_compress_epi32(kept, _mm512_maskz_loadu_epi32(lanes, indices + i)));
    _mm512_mask_storeu_ps(out_values + count, front, _mm512_maskz_compress_ps(kept, x));
    count += found;
  }
  return count;
}

}  // namespace

const SelectKernels kSelectKernelsAvx512 = {
    Scan, Add,     MakeKeys,    CountAtLeast,      KeysInRange,
    Emit, Measure, MeasureTail, MultiplyMantissas, CountReaching};

}  // namespace sparfuse
#endif

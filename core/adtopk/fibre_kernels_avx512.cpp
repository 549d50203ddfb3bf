// AVX-512: masks of 64 elements. Their bits are taken four at a time, most often once; where many
// are set, whole vectors are packed in registers.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/adtopk/fibre_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/adtopk/fibre_kernels.inc"

// The bits of the elements [i, i + 64) that reach their bounds, among those in `valid`. The
// residual is added to them, and *top raised to the largest key of each lane.
template <bool kResidual>
inline std::uint64_t Reaching(const FibreScan& s, std::size_t i, const std::uint32_t* bounds,
                              std::uint64_t valid, __m512i* top) {
  __mmask16 reach[4];
  for (std::size_t j = 0; j < 4; ++j) {
    const auto lanes = static_cast<__mmask16>(valid >> (16 * j));
    const std::size_t at = i + 16 * j;
    _mm_prefetch(reinterpret_cast<const char*>(s.gradient + at + s.ahead), _MM_HINT_T0);
    __m512 x = _mm512_maskz_loadu_ps(lanes, s.gradient + at);
    if (kResidual) {
      _mm_prefetch(reinterpret_cast<const char*>(s.residual + at + s.ahead), _MM_HINT_T0);
      x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, s.residual + at));
      _mm512_mask_storeu_ps(s.residual + at, lanes, x);
    }
    const __m512i key =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(kAbsMask)));
    *top = _mm512_max_epu32(*top, key);
    reach[j] = _mm512_mask_cmpge_epu32_mask(lanes, key, _mm512_loadu_si512(bounds + 16 * j));
  }
  // Joined in mask registers: g++ 12 reloads a spilled 16-bit mask as 64 bits where it is widened
  // in a general register, with whatever lies behind it.
  return _cvtmask64_u64(
      _mm512_kunpackd(_mm512_kunpackw(reach[3], reach[2]), _mm512_kunpackw(reach[1], reach[0])));
}

// Writes the elements [i, i + 64) of x whose bits are set behind the first `count`.
inline void Take(const FibreScan& s, const float* x, std::size_t i, std::uint64_t mask,
                 std::size_t count) {
  if (__builtin_expect(_mm_popcnt_u64(mask) <= 12, 1)) {
    do {
      for (std::size_t j = 0; j < 4; ++j) {
        const std::size_t from = i + (_tzcnt_u64(mask) & 63);  // 64, of no bits: any element
        mask = _blsr_u64(mask);
        s.indices[count + j] = s.base + static_cast<std::uint32_t>(from);
        s.values[count + j] = x[from];
      }
      count += 4;
    } while (__builtin_expect(mask != 0, 0));
    return;
  }
  __m512i index =
      _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(s.base + i)),
                       _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  for (std::size_t j = 0; j < 4; ++j, i += 16, mask >>= 16) {
    const auto kept = static_cast<__mmask16>(mask);
    _mm512_storeu_si512(s.indices + count, _mm512_maskz_compress_epi32(kept, index));
    _mm512_storeu_ps(s.values + count,
                     _mm512_maskz_compress_ps(kept, _mm512_maskz_loadu_ps(kept, x + i)));
    count += static_cast<std::size_t>(_mm_popcnt_u64(mask & 0xffff));
    index = _mm512_add_epi32(index, _mm512_set1_epi32(16));
  }
}

template <bool kResidual>
std::size_t ScanImpl(const FibreScan& s, std::uint32_t* largest) {
  const std::size_t turn = kScanLanes % s.period;
  const float* const x = kResidual ? s.residual : s.gradient;  // once it is added
  __m512i top = _mm512_setzero_si512();
  std::size_t count = 0;
  std::size_t at = 0;
  std::size_t i = 0;
  for (; i + kScanLanes <= s.n; i += kScanLanes) {
    const std::uint64_t mask = Reaching<kResidual>(s, i, s.bounds + at, ~std::uint64_t{0}, &top);
    Take(s, x, i, mask, count);
    count += static_cast<std::size_t>(_mm_popcnt_u64(mask));
    at += turn;
    at = at >= s.period ? at - s.period : at;
  }
  if (i < s.n) {
    const std::uint64_t valid = (std::uint64_t{1} << (s.n - i)) - 1;
    const std::uint64_t mask = Reaching<kResidual>(s, i, s.bounds + at, valid, &top);
    Take(s, x, i, mask, count);
    count += static_cast<std::size_t>(_mm_popcnt_u64(mask));
  }
  const auto top_lane = static_cast<std::uint32_t>(_mm512_reduce_max_epu32(top));
  *largest = top_lane > *largest ? top_lane : *largest;
  return count;
}

std::size_t Scan(const FibreScan& s, std::uint32_t* largest) {
  return s.residual == nullptr ? ScanImpl<false>(s, largest) : ScanImpl<true>(s, largest);
}

}  // namespace

const FibreKernels kFibreKernelsAvx512 = {Scan, Rank};

}  // namespace sparfuse
#endif

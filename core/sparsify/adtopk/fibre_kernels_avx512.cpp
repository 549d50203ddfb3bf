// Scans with AVX-512, VBMI2 included: makes masks of 64 elements and packs the positions of their
// bits in a register, without a branch. Then it copies the elements at these positions.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/sparsify/adtopk/fibre_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/adtopk/fibre_kernels.inc"
#include "core/sparsify/scan/simd/mask_avx512.inc"

// Returns the bits of those elements [i, i + 64) that reach their bounds and are in `valid`. Adds
// the residual to the elements, and raises *top to the largest key of each lane.
template <bool kResidual, bool kPrefetch>
inline std::uint64_t Reaching(const FibreScan& s, std::size_t i, const std::uint32_t* bounds,
                              std::uint64_t valid, __m512i* top) {
  __mmask16 reach[4];
  for (std::size_t j = 0; j < 4; ++j) {
    const auto lanes = static_cast<__mmask16>(valid >> (16 * j));
    const std::size_t at = i + 16 * j;
    if (kPrefetch) {
      _mm_prefetch(reinterpret_cast<const char*>(s.gradient + at + s.ahead), _MM_HINT_T0);
    }
    __m512 x = _mm512_maskz_loadu_ps(lanes, s.gradient + at);
    if (kResidual) {
      if (kPrefetch) {
        _mm_prefetch(reinterpret_cast<const char*>(s.residual + at + s.ahead), _MM_HINT_T0);
      }
      x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, s.residual + at));
      _mm512_mask_storeu_ps(s.residual + at, lanes, x);
    }
    const __m512i key =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(kAbsMask)));
    *top = _mm512_max_epu32(*top, key);
    reach[j] = _mm512_mask_cmpge_epu32_mask(lanes, key, _mm512_loadu_si512(bounds + 16 * j));
  }
  return Join(reach[0], reach[1], reach[2], reach[3]);
}

constexpr std::size_t kPiece = 2048;  // elements between two rounds of copying

template <bool kResidual, bool kPrefetch>
std::size_t ScanImpl(const FibreScan& s, std::uint32_t* largest) {
  const std::size_t turn = kScanLanes % s.period;
  const float* const x = kResidual ? s.residual : s.gradient;  // after the sum is stored there
  const __m512i positions = _mm512_load_si512(kPositions.at);
  std::uint16_t offsets[kPiece + 64];
  __m512i top = _mm512_setzero_si512();
  std::size_t count = 0;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < s.n; begin += kPiece) {
    const std::size_t size = s.n - begin < kPiece ? s.n - begin : kPiece;
    std::size_t found = 0;
    const auto find = [&](std::size_t i, std::uint64_t valid) {
      const std::uint64_t mask =
          Reaching<kResidual, kPrefetch>(s, begin + i, s.bounds + at, valid, &top);
      found += PackPositions(mask, positions, i, offsets + found);
      at += turn;
      at = at >= s.period ? at - s.period : at;
    };
    std::size_t i = 0;
    for (; i + kScanLanes <= size; i += kScanLanes) find(i, ~std::uint64_t{0});
    if (i < size) find(i, (std::uint64_t{1} << (size - i)) - 1);
    const auto base = s.base + static_cast<std::uint32_t>(begin);
    for (std::size_t j = 0; j < found; ++j) {
      s.indices[count + j] = base + offsets[j];
      s.values[count + j] = x[begin + offsets[j]];
    }
    count += found;
  }
  const auto top_lane = static_cast<std::uint32_t>(_mm512_reduce_max_epu32(top));
  *largest = top_lane > *largest ? top_lane : *largest;
  return count;
}

std::size_t Scan(const FibreScan& s, std::uint32_t* largest) {
  if (s.ahead == 0) {
    return s.residual == nullptr ? ScanImpl<false, false>(s, largest)
                                 : ScanImpl<true, false>(s, largest);
  }
  return s.residual == nullptr ? ScanImpl<false, true>(s, largest)
                               : ScanImpl<true, true>(s, largest);
}

}  // namespace

const FibreKernels kFibreKernelsAvx512 = {Scan, Rank};

}  // namespace sparfuse
#endif

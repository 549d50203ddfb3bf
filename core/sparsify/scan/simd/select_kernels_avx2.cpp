// Selects with AVX2: makes 64-bit masks, then finds their bits without a branch per element.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/scan/simd/select_kernels_loops.inc"
#include "core/sparsify/scan/simd/select_kernels_scan.inc"
#include "core/sparsify/scan/simd/select_kernels_statistics.inc"

inline __m256i Keys8(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(static_cast<int>(kAbsMask)));
}

// Sets bit j if lane j of `keys` is above `below`. Keys are below 2^31, so may be signed.
inline std::uint32_t Above8(__m256i keys, __m256i below) {
  return static_cast<std::uint32_t>(
      _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(keys, below))));
}

inline __m256i Below(std::uint32_t lo) { return _mm256_set1_epi32(SignedBelow(lo)); }

// For each mask of eight lanes: the set lanes, first to last; the rest are arbitrary.
struct Compactions {
  std::uint8_t lanes[256][8];
};
constexpr Compactions kCompactions = [] {
  Compactions compactions{};
  for (std::size_t mask = 0; mask < 256; ++mask) {
    std::size_t count = 0;
    for (std::size_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) {
        compactions.lanes[mask][count++] = static_cast<std::uint8_t>(lane);
      }
    }
  }
  return compactions;
}();

inline __m256i CompactionOf(std::uint32_t mask) {
  return _mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompactions.lanes[mask])));
}

template <Sums kSums>
inline std::uint64_t Mask8(const float* gradient, const float* residual, float* sum, std::size_t i,
                           __m256i below, __m256i below_zero) {
  __m256 x = _mm256_loadu_ps(gradient + i);
  if (kSums != Sums::kNone) x = _mm256_add_ps(x, _mm256_loadu_ps(residual + i));
  const __m256i keys = Keys8(x);
  if (kSums == Sums::kKept) _mm256_storeu_ps(sum + i, x);
  if (kSums == Sums::kApart) {
    const __m256i zero = _mm256_cmpgt_epi32(keys, below_zero);
    _mm256_stream_ps(sum + i, _mm256_andnot_ps(_mm256_castsi256_ps(zero), x));
  }
  return Above8(keys, below);
}

template <Sums kSums, bool kPrefetch>
std::size_t ScanImpl(const float* gradient, const float* residual, float* sum, std::size_t n,
                     std::uint32_t lo, std::uint32_t zero_from, std::uint16_t* offsets) {
  const __m256i below = Below(lo);
  const __m256i below_zero = Below(zero_from);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    std::uint64_t mask = 0;
    for (std::size_t j = 0; j < 64; j += 8) {
      if (kPrefetch && j % 16 == 0) {
        _mm_prefetch(reinterpret_cast<const char*>(gradient + i + j + kPrefetchFloats),
                     _MM_HINT_T0);
        if (kSums != Sums::kNone) {
          _mm_prefetch(reinterpret_cast<const char*>(residual + i + j + kPrefetchFloats),
                       _MM_HINT_T0);
        }
      }
      mask |= Mask8<kSums>(gradient, residual, sum, i + j, below, below_zero) << j;
    }
    Flatten(mask, static_cast<std::uint32_t>(i), offsets + count);
    count += static_cast<std::size_t>(_mm_popcnt_u64(mask));
  }
  return ScanRest<kSums>(gradient, residual, sum, i, n, lo, zero_from, offsets, count);
}

std::size_t CountAtLeast(const std::uint32_t* keys, std::size_t n, std::uint32_t lo) {
  const __m256i below = Below(lo);
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

std::size_t KeysInRange(const float* values, std::size_t n, std::uint32_t lo, std::uint32_t last,
                        std::uint32_t* keys, std::size_t* above) {
  const __m256i below = Below(lo);
  const __m256i high = _mm256_set1_epi32(static_cast<int>(last < kAbsMask ? last : kAbsMask));
  std::size_t count = 0;
  std::size_t larger = 0;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {  // count <= i: there is room for eight even if none is kept
    const __m256i key = Keys8(_mm256_loadu_ps(values + i));
    const std::uint32_t over = Above8(key, high);
    const std::uint32_t kept = Above8(key, below) & ~over;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(keys + count),
                        _mm256_permutevar8x32_epi32(key, CompactionOf(kept)));
    count += static_cast<std::size_t>(_mm_popcnt_u32(kept));
    larger += static_cast<std::size_t>(_mm_popcnt_u32(over));
  }
  *above += larger;
  return KeysInRangeRest(values, i, n, lo, last, count, keys, above);
}

std::size_t Emit(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
                 std::size_t most, std::uint32_t* out_indices, float* out_values) {
  const __m256i below = Below(lo);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 8 <= n && count + 8 <= most; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    const auto index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices + i));
    const std::uint32_t kept = Above8(Keys8(x), below);
    const __m256i order = CompactionOf(kept);
    _mm256_storeu_ps(out_values + count, _mm256_permutevar8x32_ps(x, order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out_indices + count),
                        _mm256_permutevar8x32_epi32(index, order));
    count += static_cast<std::size_t>(_mm_popcnt_u32(kept));
  }
  return EmitRest(indices, values, i, n, lo, count, most, out_indices, out_values);
}

void Put(const std::uint32_t* indices, const float* values, std::size_t n, std::uint32_t lo,
         std::uint32_t end, bool zero, float* x) {
  const __m256i below = Below(lo);
  const __m256i high = Below(end);
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i key = Keys8(_mm256_loadu_ps(values + i));
    for (std::uint32_t put = Above8(key, below) & ~Above8(key, high); put != 0; put &= put - 1) {
      const std::size_t at = i + _tzcnt_u32(put);
      x[indices[at]] = zero ? 0.0f : values[at];
    }
  }
  PutRest(indices, values, i, n, lo, end, zero, x);
}

}  // namespace

const SelectKernels kSelectKernelsAvx2 = {
    Scan,    ScanApart,   Positions,         Gather,       GatherSums,  Clear,
    Put,     Add,         MakeKeys,          CountAtLeast, KeysInRange, Emit,
    Measure, MeasureTail, MultiplyMantissas, CountReaching};

}  // namespace sparfuse
#endif

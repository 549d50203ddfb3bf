// Looks up sixteen indices at once with AVX-512. Compaction goes through a register: the
// compressing store to memory is microcoded on some machines.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/coding/bloom_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/coding/bloom_kernels.inc"

inline __m512i Mixed8(__m512i z) {
  z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 30));
  z = _mm512_mullo_epi64(z, _mm512_set1_epi64(static_cast<long long>(0xbf58476d1ce4e5b9u)));
  z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 27));
  z = _mm512_mullo_epi64(z, _mm512_set1_epi64(static_cast<long long>(0x94d049bb133111ebu)));
  return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
}

// Computes the input of the mixer for eight indices.
inline __m512i Before8(std::uint64_t seed, __m256i indices) {
  const __m512i number = _mm512_add_epi64(_mm512_cvtepu32_epi64(indices), _mm512_set1_epi64(1));
  return _mm512_add_epi64(
      _mm512_mullo_epi64(number, _mm512_set1_epi64(static_cast<long long>(kGolden))),
      _mm512_set1_epi64(static_cast<long long>(seed)));
}

// Returns sixteen places, the first eight from `low`.
inline __m512i Place16(__m512i low, __m512i high, __m512i bits) {
  const __m512i first = _mm512_mul_epu32(_mm512_srli_epi64(Mixed8(low), 32), bits);
  const __m512i second = _mm512_mul_epu32(_mm512_srli_epi64(Mixed8(high), 32), bits);
  return _mm512_inserti64x4(
      _mm512_castsi256_si512(_mm512_cvtepi64_epi32(_mm512_srli_epi64(first, 32))),
      _mm512_cvtepi64_epi32(_mm512_srli_epi64(second, 32)), 1);
}

inline __m512i AddTo16(__m512i a, __m512i b, __m512i bits) {
  const __m512i left = _mm512_sub_epi32(bits, b);
  const __mmask16 round = _mm512_cmpge_epu32_mask(a, left);
  return _mm512_mask_sub_epi32(_mm512_add_epi32(a, b), round, a, left);
}

// Returns those of `lanes` whose bit is set.
inline __mmask16 HaveBits(const std::uint32_t* words, __m512i at, __mmask16 lanes) {
  const __m512i found = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes,
                                                    _mm512_srli_epi32(at, 5), words, 4);
  const __m512i bit =
      _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_si512(at, _mm512_set1_epi32(31)));
  return _mm512_test_epi32_mask(found, bit);
}

inline __mmask16 LanesOf(std::size_t left) {
  return left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
}

inline void Pack(std::uint32_t* to, __mmask16 kept, __m512i from) {
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(kept, from));
}

inline std::size_t QueryBatch16(const BloomView& filter, std::uint32_t begin, std::uint32_t size,
                                std::uint32_t* out) {
  // The survivors of the batch move up, sixteen at a time: the last store reaches beyond them.
  std::uint32_t index[kBatch + 16];
  std::uint32_t at[kBatch + 16];
  std::uint32_t step[kBatch + 16];
  const __m512i bits = _mm512_set1_epi32(static_cast<int>(filter.bits));
  const __m512i wide_bits = _mm512_set1_epi64(filter.bits);
  const __m512i count_up = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i forward = _mm512_set1_epi64(static_cast<long long>(16 * kGolden));
  const __m512i from = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(begin)), count_up);
  __m512i low = Before8(kFirstSeed, _mm512_castsi512_si256(from));
  __m512i high = Before8(kFirstSeed, _mm512_extracti64x4_epi64(from, 1));
  std::size_t left = 0;
  for (std::uint32_t i = 0; i < size; i += 16) {
    const __m512i indices =
        _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(begin + i)), count_up);
    const __m512i place = Place16(low, high, wide_bits);
    low = _mm512_add_epi64(low, forward);
    high = _mm512_add_epi64(high, forward);
    const __mmask16 kept = HaveBits(filter.words, place, LanesOf(size - i));
    Pack(index + left, kept, indices);
    Pack(at + left, kept, place);
    left += static_cast<std::size_t>(__builtin_popcount(kept));
  }
  for (std::uint32_t number = 1; number < filter.hashes; ++number) {
    const __m512i increment = _mm512_set1_epi32(static_cast<int>(number % filter.bits));
    std::size_t still = 0;
    for (std::size_t i = 0; i < left; i += 16) {
      const __m512i indices = _mm512_loadu_si512(index + i);
      const __m512i by =
          number == 1
              ? Place16(Before8(kSecondSeed, _mm512_castsi512_si256(indices)),
                        Before8(kSecondSeed, _mm512_extracti64x4_epi64(indices, 1)), wide_bits)
              : _mm512_loadu_si512(step + i);
      const __m512i place = AddTo16(_mm512_loadu_si512(at + i), by, bits);
      const __mmask16 kept = HaveBits(filter.words, place, LanesOf(left - i));
      Pack(index + still, kept, indices);
      Pack(at + still, kept, place);
      Pack(step + still, kept, AddTo16(by, increment, bits));
      still += static_cast<std::size_t>(__builtin_popcount(kept));
    }
    left = still;
  }
  for (std::size_t i = 0; i < left; ++i) out[i] = index[i];
  return left;
}

}  // namespace

const BloomKernels kBloomKernelsAvx512 = {Query<QueryBatch16>, Insert};

}  // namespace sparfuse
#endif

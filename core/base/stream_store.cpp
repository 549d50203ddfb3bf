#include "core/base/stream_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/cpu.hpp"

namespace sparfuse {
namespace {

bool ScaleFew(const float* from, float scale, std::size_t n, float* to) {
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = from[i] * scale;
    finite = finite && std::isfinite(to[i]);
  }
  return finite;
}

}  // namespace

#if defined(__x86_64__)
namespace {

// Added to the bits of a magnitude it reaches the highest bit where that is not finite.
constexpr int kExponentUnit = 0x00800000;

constexpr std::size_t kStreamElements = 4 * 1024 * 1024;
constexpr std::size_t kLine = 16;  // floats of 64 bytes

// to[i] = from[i] * scale for whole lines, `to` at the begin of one. Returns whether
// all of them are finite. A store of the full width matters: a core starts one a cycle,
// and four of them a line are longer on their way than the line is to memory.
bool StreamLines(const float* from, float scale, std::size_t lines, float* to) {
  const __m128 factor = _mm_set1_ps(scale);
  const __m128i abs = _mm_set1_epi32(0x7fffffff);
  const __m128i carry = _mm_set1_epi32(kExponentUnit);
  __m128i seen = _mm_setzero_si128();
  for (std::size_t i = 0; i < lines * kLine; i += 4) {
    const __m128 x = _mm_mul_ps(_mm_loadu_ps(from + i), factor);
    _mm_stream_ps(to + i, x);
    const __m128i key = _mm_and_si128(_mm_castps_si128(x), abs);
    seen = _mm_or_si128(seen, _mm_add_epi32(key, carry));
  }
  return _mm_movemask_ps(_mm_castsi128_ps(seen)) == 0;
}

__attribute__((target("avx2"))) bool StreamLinesAvx2(const float* from, float scale,
                                                     std::size_t lines, float* to) {
  const __m256 factor = _mm256_set1_ps(scale);
  const __m256i abs = _mm256_set1_epi32(0x7fffffff);
  const __m256i carry = _mm256_set1_epi32(kExponentUnit);
  __m256i seen = _mm256_setzero_si256();
  for (std::size_t i = 0; i < lines * kLine; i += 8) {
    const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(from + i), factor);
    _mm256_stream_ps(to + i, x);
    const __m256i key = _mm256_and_si256(_mm256_castps_si256(x), abs);
    seen = _mm256_or_si256(seen, _mm256_add_epi32(key, carry));
  }
  return _mm256_movemask_ps(_mm256_castsi256_ps(seen)) == 0;
}

__attribute__((target("avx512f"))) bool StreamLinesAvx512(const float* from, float scale,
                                                          std::size_t lines, float* to) {
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512i abs = _mm512_set1_epi32(0x7fffffff);
  const __m512i carry = _mm512_set1_epi32(kExponentUnit);
  __m512i seen = _mm512_setzero_si512();
  for (std::size_t i = 0; i < lines * kLine; i += 16) {
    const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(from + i), factor);
    _mm512_stream_ps(to + i, x);
    const __m512i key = _mm512_and_si512(_mm512_castps_si512(x), abs);
    seen = _mm512_or_si512(seen, _mm512_add_epi32(key, carry));
  }
  return _mm512_cmplt_epi32_mask(seen, _mm512_setzero_si512()) == 0;
}

}  // namespace

bool StreamingPays(std::size_t n) { return n >= kStreamElements; }

bool StreamScaled(const float* from, float scale, std::size_t n, float* to) {
  const Isa isa = ActiveIsa();
  const auto stream_lines = isa == Isa::kAvx512 ? StreamLinesAvx512
                            : isa == Isa::kAvx2 ? StreamLinesAvx2
                                                : StreamLines;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) / sizeof(float) % kLine;
  const std::size_t head = std::min(n, (kLine - past) % kLine);
  const std::size_t lines = (n - head) / kLine;
  const std::size_t tail = head + lines * kLine;
  const bool finite =
      ScaleFew(from, scale, head, to) & ScaleFew(from + tail, scale, n - tail, to + tail);
  return stream_lines(from + head, scale, lines, to + head) && finite;
}

void EndStreaming() { _mm_sfence(); }

#else

bool StreamingPays(std::size_t /*n*/) { return false; }

bool StreamScaled(const float* from, float scale, std::size_t n, float* to) {
  return ScaleFew(from, scale, n, to);
}

void EndStreaming() {}

#endif

}  // namespace sparfuse

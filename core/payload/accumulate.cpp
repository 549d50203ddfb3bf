#include "core/payload/accumulate.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cmath>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/base/stream_store.hpp"

namespace sparfuse {
namespace {

// A block of sums stays in L1 while payloads are added to it, and until it is written.
constexpr std::size_t kBlock = 4096;
constexpr std::size_t kChunk = 64 * kBlock;  // 1 MB: a pool thread's task
constexpr std::size_t kLine = 16;            // elements of 64 bytes
constexpr std::size_t kTogether = 8;         // of a payload: checked and added together
// Elements of a payload are asked for so long before they are added: a block reads pieces of two
// streams of each payload, which are too short for a processor to foresee the next ones.
constexpr std::size_t kAhead = 32 * kLine;
// Below this, waking a thread costs more than it saves.
constexpr std::size_t kParallelElements = 200'000;

void ForChunks(std::size_t n, ThreadPool& pool, const auto& body) {
  const bool alone = pool.threads() == 1 || n < kParallelElements;
  const std::size_t chunk_size = alone ? std::max<std::size_t>(n, 1) : kChunk;
  pool.ParallelFor((n + chunk_size - 1) / chunk_size, [&](std::size_t c, int) {
    body(c * chunk_size, std::min(n, (c + 1) * chunk_size));
  });
}

// Largest magnitude of a finite number, as bits without the sign.
constexpr std::int32_t kLargestFinite = 0x7f7fffff;

std::int32_t Magnitude(float x) { return std::bit_cast<std::int32_t>(x) & 0x7fffffff; }

bool IsFinite(const float* x, std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, Magnitude(x[i]));
  return largest <= kLargestFinite;
}

// Writes to[i] = sums[i] * scale and zeroes the sums. Returns false if one is NaN or infinite,
// which costs nothing beside the stores. The zeroes are stored in the same loop: in one of their
// own they would wait for all streamed stores.
bool WriteSums(float* sums, float scale, std::size_t n, float* to) {
  std::int32_t bad = 0;  // a maximum would make each element wait for the one before
  for (std::size_t i = 0; i < n; ++i) {
    bad |= Magnitude(sums[i]) > kLargestFinite ? -1 : 0;
    to[i] = sums[i] * scale;
    sums[i] = 0.0f;
  }
  return bad == 0;
}

#if defined(__x86_64__)
// WriteSums for whole lines; with kStream past the caches: a plain store would first read the line.
// Such stores must have the full width: a core starts one store a cycle, and a line's four narrow
// stores would take longer than the line takes to memory.
template <bool kStream>
__attribute__((target("avx2"))) bool WriteLinesAvx2(float* sums, float scale, std::size_t n,
                                                    float* to) {
  const __m256 factor = _mm256_set1_ps(scale);
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  for (std::size_t i = 0; i < n; i += 8) {
    const __m256 x = _mm256_load_ps(sums + i);
    const __m256i of_x = _mm256_and_si256(_mm256_castps_si256(x), exponent);
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(of_x, exponent));
    const __m256 scaled = _mm256_mul_ps(x, factor);
    if constexpr (kStream) {
      _mm256_stream_ps(to + i, scaled);
    } else {
      _mm256_store_ps(to + i, scaled);
    }
    _mm256_store_ps(sums + i, _mm256_setzero_ps());
  }
  return _mm256_testz_si256(bad, bad) != 0;
}

template <bool kStream>
__attribute__((target("avx512f"))) bool WriteLinesAvx512(float* sums, float scale, std::size_t n,
                                                         float* to) {
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  __mmask16 bad = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    const __m512 x = _mm512_load_ps(sums + i);
    const __m512i of_x = _mm512_and_si512(_mm512_castps_si512(x), exponent);
    bad = static_cast<__mmask16>(bad | _mm512_cmpeq_epi32_mask(of_x, exponent));
    const __m512 scaled = _mm512_mul_ps(x, factor);
    if constexpr (kStream) {
      _mm512_stream_ps(to + i, scaled);
    } else {
      _mm512_store_ps(to + i, scaled);
    }
    _mm512_store_ps(sums + i, _mm512_setzero_ps());
  }
  return bad == 0;
}
#endif

using WriteFunction = bool (*)(float*, float, std::size_t, float*);

WriteFunction WriteLinesFor([[maybe_unused]] Isa isa, [[maybe_unused]] bool stream) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return stream ? WriteLinesAvx512<true> : WriteLinesAvx512<false>;
  if (isa == Isa::kAvx2) return stream ? WriteLinesAvx2<true> : WriteLinesAvx2<false>;
#endif
  return WriteSums;
}

template <class... Parts>
[[noreturn]] void ThrowCorrupt(std::size_t payload, const Parts&... what) {
  SPARFUSE_THROW(kComm, "sparse payload ", payload, " is corrupt: ", what...);
}

// A chunk's elements of a payload that are not added yet.
struct Rest {
  std::size_t next;
  std::size_t last;
};

// Adds a payload's elements of [begin, begin + size) to `sums`, [size]. An index that is not above
// its predecessor stops `rest` for good, which is noticed at the chunk's end.
void AddBlock(const SparsePayload& payload, std::size_t begin, std::size_t size, float* sums,
              Rest& rest) {
  const auto base = static_cast<std::uint32_t>(begin);
  std::size_t cursor = rest.next;
  std::uint32_t least = 0;  // of the next offset
  for (; cursor + kTogether <= rest.last; cursor += kTogether) {
    const std::uint32_t* const indices = payload.indices.data() + cursor;
    const float* const values = payload.values.data() + cursor;
    const std::uint32_t most = indices[kTogether - 1] - base;  // below `begin` it wraps: not < size
    if (most >= size) break;
    // Any gap of a block's size or more, or one that wraps as indices do not increase, shows in the
    // bits of all gaps. So offsets that pass are below `size`.
    std::uint32_t gaps = indices[0] - base - least;
    for (std::size_t j = 1; j < kTogether; ++j) gaps |= indices[j] - indices[j - 1] - 1;
    if (gaps >= kBlock) break;
    __builtin_prefetch(indices + kAhead);
    __builtin_prefetch(values + kAhead);
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kTogether; ++j) sums[indices[j] - base] += values[j];
    least = most + 1;
  }
  for (; cursor < rest.last; ++cursor) {
    const std::uint32_t offset = payload.indices[cursor] - base;
    if (offset < least || offset >= size) break;
    sums[offset] += payload.values[cursor];
    least = offset + 1;
  }
  rest.next = cursor;
}

// to[i] = from[i], or += from[i]. Returns whether all results are finite.
template <bool kAdd>
bool MoveFinite(std::span<const float> from, std::span<float> to, ThreadPool& pool) {
  assert(from.size() == to.size());
  std::atomic<bool> finite{true};
  ForChunks(from.size(), pool, [&](std::size_t begin, std::size_t end) {
    // The largest bit pattern without sign: infinities and NaNs exceed all others. Compared as
    // signed numbers, which every instruction set supports.
    std::int32_t largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float x = kAdd ? to[i] + from[i] : from[i];
      to[i] = x;
      largest = std::max(largest, Magnitude(x));
    }
    if (largest > kLargestFinite) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

}  // namespace

bool AccumulateSparse(std::span<const SparsePayload> payloads, float scale, std::span<float> out,
                      ThreadPool& pool) {
  return AccumulateSparse(payloads, {0, out.size()}, scale, out, pool);
}

bool AccumulateSparse(std::span<const SparsePayload> payloads, const Window& window, float scale,
                      std::span<float> out, ThreadPool& pool) {
  const std::size_t shift = window.first;
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    const SparsePayload& payload = payloads[p];
    if (payload.indices.size() != payload.values.size()) {
      ThrowCorrupt(p, payload.indices.size(), " indices, ", payload.values.size(), " values");
    }
    if (!payload.indices.empty() && payload.indices.back() >= window.whole) {
      ThrowCorrupt(p, "index ", payload.indices.back(), ", expected below ", window.whole);
    }
  }
  const bool stream = StreamingPays(out.size());
  const WriteFunction write_lines = WriteLinesFor(ActiveIsa(), stream);
  std::atomic<bool> finite{true};
  ForChunks(out.size(), pool, [&](std::size_t begin, std::size_t end) {
    std::vector<Rest> rests(payloads.size());
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const auto indices = payloads[p].indices;
      const auto bound = [&](std::size_t index) {
        return static_cast<std::size_t>(std::lower_bound(indices.begin(), indices.end(), index) -
                                        indices.begin());
      };
      rests[p] = {bound(shift + begin),
                  shift + end == window.whole ? indices.size() : bound(shift + end)};
    }
    // The sums begin as many elements past the start of a line as the output does.
    const std::size_t past =
        reinterpret_cast<std::uintptr_t>(out.data() + begin) / sizeof(float) % kLine;
    alignas(64) float room[kLine + kBlock];
    float* const sums = room + past;
    std::fill_n(sums, std::min(kBlock, end - begin), 0.0f);
    bool all_finite = true;
    for (std::size_t block = begin; block < end; block += kBlock) {
      const std::size_t size = std::min(kBlock, end - block);
      for (std::size_t p = 0; p < payloads.size(); ++p) {
        AddBlock(payloads[p], shift + block, size, sums, rests[p]);
      }
      float* const to = out.data() + block;
      const std::size_t head = std::min(size, (kLine - past) % kLine);
      const std::size_t tail = head + (size - head) / kLine * kLine;
      all_finite &= WriteSums(sums, scale, head, to);
      all_finite &= write_lines(sums + head, scale, tail - head, to + head);
      all_finite &= WriteSums(sums + tail, scale, size - tail, to + tail);
    }
    if (!all_finite) finite.store(false, std::memory_order_relaxed);
    if (stream) EndStreaming();
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const auto [next, last] = rests[p];
      if (next == last) continue;
      ThrowCorrupt(p, "index ", payloads[p].indices[next], " at position ", next,
                   ", expected increasing indices below ", window.whole);
    }
  });
  return finite;
}

void ScaleDense(std::span<const float> in, float scale, std::span<float> out, ThreadPool& pool) {
  assert(in.size() == out.size());
  ForChunks(in.size(), pool, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) out[i] = in[i] * scale;
  });
}

void AddInto(std::span<const float> from, std::span<float> to) {
  assert(from.size() == to.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

std::size_t FirstNotFinite(std::span<const float> values) {
  std::size_t i = 0;
  for (; i < values.size(); i += kBlock) {
    const std::size_t size = std::min(kBlock, values.size() - i);
    if (!IsFinite(values.data() + i, size)) break;
  }
  i = std::min(i, values.size());
  while (i < values.size() && std::isfinite(values[i])) ++i;
  return i;
}

bool CopyFinite(std::span<const float> from, std::span<float> to, ThreadPool& pool) {
  return MoveFinite<false>(from, to, pool);
}

bool AddFinite(std::span<const float> from, std::span<float> to, ThreadPool& pool) {
  return MoveFinite<true>(from, to, pool);
}

}  // namespace sparfuse

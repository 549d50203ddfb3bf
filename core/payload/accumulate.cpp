#include "core/payload/accumulate.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"

namespace sparfuse {
namespace {

// A block of the output stays in L1 during clearing, summation and scaling.
constexpr std::size_t kBlock = 4096;
constexpr std::size_t kChunk = 64 * kBlock;  // 1 MB: a pool thread's task
constexpr std::size_t kSparseScaling = 16;   // below one touched element in 16: scales only those
constexpr std::size_t kGroup = 64;           // payloads merged in one pass
// Below this, waking a thread costs more than it saves.
constexpr std::size_t kParallelElements = 200'000;

std::size_t ChunkSize(std::size_t n) {
  return n < kParallelElements ? std::max<std::size_t>(n, 1) : kChunk;
}

template <class Body>
void ForChunks(std::size_t n, ThreadPool& pool, const Body& body) {
  const std::size_t chunk_size = ChunkSize(n);
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

void ScaleBlock(float* out, std::size_t n, float scale) {
  for (std::size_t i = 0; i < n; ++i) out[i] *= scale;
}

// Scales the positions that payloads hold: the elements of each payload p from first[p] up to
// last[p]. A bitmap marks positions that are already scaled.
void ScaleTouched(std::span<const SparsePayload> payloads, const std::size_t* first,
                  const std::size_t* last, std::size_t begin, float* out, float scale) {
  std::uint64_t touched[kBlock / 64] = {};
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    for (std::size_t i = first[p]; i < last[p]; ++i) {
      const std::size_t offset = payloads[p].indices[i] - begin;
      touched[offset / 64] |= std::uint64_t{1} << (offset % 64);
    }
  }
  for (std::size_t w = 0; w < kBlock / 64; ++w) {
    for (std::uint64_t word = touched[w]; word != 0; word &= word - 1) {
      out[w * 64 + static_cast<std::size_t>(std::countr_zero(word))] *= scale;
    }
  }
}

// Larger outputs are written with stores that bypass the caches: a plain store would first read the
// line. Smaller outputs stay in cache for their reader.
constexpr std::size_t kStreamElements = 4 * 1024 * 1024;
constexpr std::size_t kLine = 16;  // floats of 64 bytes

bool CanStream([[maybe_unused]] std::size_t n) {
#if defined(__x86_64__)
  return n >= kStreamElements;
#else
  return false;
#endif
}

#if defined(__x86_64__)
// Writes to[i] = from[i] * scale for whole lines, where `to` begins a line. Returns false if a
// number is NaN or infinite, which costs nothing beside the stores. Stores must have the full
// width: a core starts one store a cycle, and a line's four narrow stores would take longer than
// the line takes to memory. Other stores between them would delay them, too.
bool StreamLines(const float* from, float scale, std::size_t lines, float* to) {
  const __m128 factor = _mm_set1_ps(scale);
  const __m128i exponent = _mm_set1_epi32(0x7f800000);
  __m128i bad = _mm_setzero_si128();
  for (std::size_t i = 0; i < lines * kLine; i += 4) {
    const __m128 x = _mm_loadu_ps(from + i);
    bad =
        _mm_or_si128(bad, _mm_cmpeq_epi32(_mm_and_si128(_mm_castps_si128(x), exponent), exponent));
    _mm_stream_ps(to + i, _mm_mul_ps(x, factor));
  }
  return _mm_movemask_epi8(bad) == 0;
}

__attribute__((target("avx2"))) bool StreamLinesAvx2(const float* from, float scale,
                                                     std::size_t lines, float* to) {
  const __m256 factor = _mm256_set1_ps(scale);
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  for (std::size_t i = 0; i < lines * kLine; i += 8) {
    const __m256 x = _mm256_loadu_ps(from + i);
    const __m256i of_x = _mm256_and_si256(_mm256_castps_si256(x), exponent);
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(of_x, exponent));
    _mm256_stream_ps(to + i, _mm256_mul_ps(x, factor));
  }
  return _mm256_testz_si256(bad, bad) != 0;
}

__attribute__((target("avx512f"))) bool StreamLinesAvx512(const float* from, float scale,
                                                          std::size_t lines, float* to) {
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  __mmask16 bad = 0;
  for (std::size_t i = 0; i < lines * kLine; i += 16) {
    const __m512 x = _mm512_loadu_ps(from + i);
    const __m512i of_x = _mm512_and_si512(_mm512_castps_si512(x), exponent);
    bad = static_cast<__mmask16>(bad | _mm512_cmpeq_epi32_mask(of_x, exponent));
    _mm512_stream_ps(to + i, _mm512_mul_ps(x, factor));
  }
  return bad == 0;
}
#endif

using StreamLinesFunction = bool (*)(const float*, float, std::size_t, float*);

StreamLinesFunction StreamLinesFor([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return StreamLinesAvx512;
  return isa == Isa::kAvx2 ? StreamLinesAvx2 : StreamLines;
#else
  return nullptr;
#endif
}

// Writes to[i] = from[i] * scale past the caches, except for lines partly outside `to`.
// Returns false if a number is NaN or infinite.
bool StreamScaled(StreamLinesFunction stream_lines, const float* from, float scale, std::size_t n,
                  float* to) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) / sizeof(float) % kLine;
  const std::size_t head = std::min(n, (kLine - past) % kLine);
  const std::size_t lines = (n - head) / kLine;
  bool finite = stream_lines(from + head, scale, lines, to + head);
  const auto single = [&](std::size_t i) {
    finite = finite && Magnitude(from[i]) <= kLargestFinite;
    to[i] = from[i] * scale;
  };
  for (std::size_t i = 0; i < head; ++i) single(i);
  for (std::size_t i = head + lines * kLine; i < n; ++i) single(i);
  return finite;
}

[[noreturn]] void ThrowCorrupt(std::size_t payload, const std::string& what) {
  SPARFUSE_THROW(kComm, "sparse payload " + std::to_string(payload) + " is corrupt: " + what);
}

// Adds payload p's elements of [begin, begin + size) from `cursor` on; returns the cursor after
// them. An index out of order stops the cursor for good, which is noticed at the chunk's end.
std::size_t AddBlock(const SparsePayload& payload, std::size_t cursor, std::size_t last,
                     std::size_t begin, std::size_t size, float* out) {
  const std::uint32_t* const indices = payload.indices.data();
  const float* const values = payload.values.data();
  for (; cursor < last; ++cursor) {
    const std::size_t offset = indices[cursor] - begin;  // below begin it wraps: not < size
    if (offset >= size) break;
    out[offset] += values[cursor];
  }
  return cursor;
}

// Asks for the `count` elements of a payload from `first` on. A block reads pieces of two streams
// of each payload, and they are too short for a processor to foresee the next ones.
void Prefetch(const SparsePayload& payload, std::size_t first, std::size_t count) {
  const std::size_t end = std::min(first + count, payload.indices.size());
  for (std::size_t i = first; i < end; i += kLine) {
    __builtin_prefetch(payload.indices.data() + i);
    __builtin_prefetch(payload.values.data() + i);
  }
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
      ThrowCorrupt(p, std::to_string(payload.indices.size()) + " indices, " +
                          std::to_string(payload.values.size()) + " values");
    }
    if (!payload.indices.empty() && payload.indices.back() >= window.whole) {
      ThrowCorrupt(p, "index " + std::to_string(payload.indices.back()) + ", expected below " +
                          std::to_string(window.whole));
    }
  }
  // Sums a block in `block_sum` and streams it from there, or sums it in place.
  const bool stream = CanStream(out.size()) && payloads.size() <= kGroup;
  const StreamLinesFunction stream_lines = StreamLinesFor(ActiveIsa());
  std::atomic<bool> finite{true};
  ForChunks(out.size(), pool, [&](std::size_t begin, std::size_t end) {
    alignas(64) float block_sum[kBlock];
    if (stream) std::memset(block_sum, 0, sizeof block_sum);
    bool all_finite = true;
    // Cursors of a usual number of ranks fit on the stack. More payloads take more rounds over the
    // chunk, in the same order of additions.
    std::size_t cursors[kGroup];
    std::size_t starts[kGroup];  // of the current block
    std::size_t lasts[kGroup];
    for (std::size_t first = 0; first == 0 || first < payloads.size(); first += kGroup) {
      const std::size_t group = std::min(kGroup, payloads.size() - first);
      for (std::size_t p = 0; p < group; ++p) {
        const auto indices = payloads[first + p].indices;
        const auto bound = [&](std::size_t index) {
          return static_cast<std::size_t>(std::lower_bound(indices.begin(), indices.end(), index) -
                                          indices.begin());
        };
        cursors[p] = bound(shift + begin);
        lasts[p] = shift + end == window.whole ? indices.size() : bound(shift + end);
      }
      const bool is_last = first + group >= payloads.size();
      for (std::size_t block = begin; block < end; block += kBlock) {
        const std::size_t size = std::min(kBlock, end - block);
        float* const to = stream ? block_sum : out.data() + block;
        if (first == 0 && !stream) std::memset(to, 0, size * sizeof(float));
        std::size_t touched = 0;
        for (std::size_t p = 0; p < group; ++p) {
          starts[p] = cursors[p];
          cursors[p] = AddBlock(payloads[first + p], cursors[p], lasts[p], shift + block, size, to);
          const std::size_t added = cursors[p] - starts[p];
          Prefetch(payloads[first + p], cursors[p] + added, added);  // of the block after the next
          touched += added;
        }
        if (stream) {
          all_finite &= StreamScaled(stream_lines, block_sum, scale, size, out.data() + block);
          if (touched * kSparseScaling < size) {
            for (std::size_t p = 0; p < group; ++p) {
              for (std::size_t i = starts[p]; i < cursors[p]; ++i) {
                block_sum[payloads[p].indices[i] - shift - block] = 0.0f;
              }
            }
          } else {
            std::memset(block_sum, 0, sizeof block_sum);
          }
          continue;
        }
        if (!is_last) continue;
        all_finite &= IsFinite(to, size);
        if (scale == 1.0f) continue;
        if (first == 0 && touched * kSparseScaling < size) {
          ScaleTouched(payloads, starts, cursors, shift + block, to, scale);
        } else {
          ScaleBlock(to, size, scale);
        }
      }
      for (std::size_t p = 0; p < group; ++p) {
        if (cursors[p] != lasts[p]) {
          ThrowCorrupt(first + p,
                       "index " + std::to_string(payloads[first + p].indices[cursors[p]]) +
                           " at position " + std::to_string(cursors[p]) +
                           ", expected increasing indices below " + std::to_string(window.whole));
        }
      }
    }
    if (!all_finite) finite.store(false, std::memory_order_relaxed);
#if defined(__x86_64__)
    if (stream) _mm_sfence();  // before another thread learns that the chunk is written
#endif
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
  assert(from.size() == to.size());
  std::atomic<bool> finite{true};
  ForChunks(from.size(), pool, [&](std::size_t begin, std::size_t end) {
    // The largest bit pattern without sign: infinities and NaNs exceed all others. Compared as
    // signed numbers, which every instruction set supports.
    std::int32_t largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float x = from[i];
      to[i] = x;
      largest = std::max(largest, Magnitude(x));
    }
    if (largest > kLargestFinite) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

bool AddFinite(std::span<const float> from, std::span<float> to, ThreadPool& pool) {
  assert(from.size() == to.size());
  std::atomic<bool> finite{true};
  ForChunks(from.size(), pool, [&](std::size_t begin, std::size_t end) {
    std::int32_t largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      to[i] += from[i];
      largest = std::max(largest, Magnitude(to[i]));
    }
    if (largest > kLargestFinite) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

}  // namespace sparfuse

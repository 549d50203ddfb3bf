// Sums up payloads and merges selections in kernels (accumulate_device.hpp).
//
// Decompression: a block sums a chunk of the output in shared memory, payload after payload with a
// barrier between them, and writes the chunk once. A first kernel compares neighbouring indices. It
// finds the begins of the chunks in each payload, and checks that indices increase. It costs a read
// of the indices; a search in every block would cost 18 dependent loads instead.
//
// Expected for 25.6M elements on a card of 4.8 TB/s, where a memset takes 21 us: two payloads of 1
// % read 2 + 4 MB and write 102 MB, 24 us; with `touched` 15 % of the 32-byte sectors are written,
// and about as many zeroed, 8 to 12 us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/device/kernel.hpp"
#include "core/device/quads.hpp"
#include "core/payload/accumulate_device.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse::gpu {

inline constexpr std::uint32_t kMaxPayloads = 32;  // of one launch
inline constexpr std::uint32_t kSumChunk = 8192;   // elements of the output that a block sums
inline constexpr std::uint32_t kSector = 8;        // floats in 32 bytes, the unit of memory writes
inline constexpr std::uint32_t kChunkWords = kSumChunk / kSector / 32;

// Greater for an earlier payload and position, so that AtomicMax finds the first.
SPARFUSE_HOST_DEVICE std::uint64_t PayloadFaultCode(std::uint32_t payload, std::uint32_t position) {
  return ~(static_cast<std::uint64_t>(payload) << 32 | position);
}

struct PayloadTable {
  const std::uint32_t* indices[kMaxPayloads];
  const float* values[kMaxPayloads];
  const std::uint32_t* count_words[kMaxPayloads];  // or null
  std::uint32_t counts[kMaxPayloads];              // with a count word: upper bounds
  std::uint32_t size;
  std::uint32_t number;  // of the first payload, for faults

  SPARFUSE_DEVICE std::uint32_t Count(std::uint32_t p) const {
    if (count_words[p] == nullptr) return counts[p];
    const std::uint32_t count = *count_words[p];
    return count < counts[p] ? count : counts[p];
  }
};

// The position of the output in the payloads' range. Chunks are aligned with sectors of the
// output's memory: the first chunk begins `skew` elements before the output.
struct SumWindow {
  std::uint64_t first;
  std::uint64_t whole;
  std::uint64_t n;
  std::uint32_t skew;
  std::uint32_t chunks;

  // 0 before the output, 1 + the number of the index's chunk inside it, chunks + 1 after it.
  SPARFUSE_DEVICE std::uint32_t Code(std::uint32_t index) const {
    if (index < first) return 0;
    const std::uint64_t offset = index - first;
    if (offset >= n) return chunks + 1;
    return static_cast<std::uint32_t>((offset + skew) / kSumChunk) + 1;
  }
};

// starts[p][c] = the first position of payload p whose element lies in chunk c or after it. c goes
// up to `chunks`, one past the last chunk.
struct FindChunks {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 8;
  static constexpr std::uint32_t kPerBlock = kThreads * kPerThread;

  PayloadTable payloads;
  std::uint32_t first_block[kMaxPayloads + 1];  // that works on payload p
  SumWindow window;
  std::uint32_t* starts;  // [payloads.size][chunks + 1]
  std::uint64_t* fault;

  static std::uint32_t BlocksFor(std::uint32_t count) { return count / kPerBlock + 1; }

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    std::uint32_t p = 0;
    while (block.block() >= first_block[p + 1]) ++p;
    const std::uint32_t* const indices = payloads.indices[p];
    const std::uint32_t count = payloads.Count(p);
    std::uint32_t* const of_payload = starts + std::size_t{p} * (window.chunks + 1);
    const std::uint32_t begin = (block.block() - first_block[p]) * kPerBlock + block.thread();
    // Position `count` means an element after all others.
    std::uint32_t index[kPerThread];
    std::uint32_t before[kPerThread];
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::uint32_t i = begin + j * kThreads;
      index[j] = i < count ? indices[i] : 0;
      before[j] = i > 0 && i <= count ? indices[i - 1] : 0;
    }
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::uint32_t i = begin + j * kThreads;
      if (i < count && (index[j] >= window.whole || (i > 0 && index[j] <= before[j]))) {
        block.AtomicMax(fault, PayloadFaultCode(payloads.number + p, i));
      }
      std::uint32_t from = 0;
      std::uint32_t to = 0;
      if (i <= count) {
        from = i == 0 ? 0 : window.Code(before[j]);
        to = i == count ? window.chunks + 1 : window.Code(index[j]);
      }
      Fill(block, of_payload, from, to, i);
    }
  }

 private:
  // starts[c] = i for from <= c < to. The warp fills long runs together.
  static SPARFUSE_DEVICE void Fill(auto& block, std::uint32_t* starts, std::uint32_t from,
                                   std::uint32_t to, std::uint32_t i) {
    constexpr std::uint32_t kAlone = 4;
    const bool is_long = to > from && to - from > kAlone;
    if (!is_long) {
      for (std::uint32_t c = from; c < to; ++c) starts[c] = i;
    }
    for (std::uint32_t left = block.Ballot(is_long); left != 0; left &= left - 1) {
      const std::uint32_t lane = LowestBit(left);
      const std::uint32_t end = block.Shuffle(to, lane);
      const std::uint32_t value = block.Shuffle(i, lane);
      for (std::uint32_t c = block.Shuffle(from, lane) + block.lane(); c < end; c += kWarp) {
        starts[c] = value;
      }
    }
  }

  static SPARFUSE_DEVICE std::uint32_t LowestBit(std::uint32_t word) {
    std::uint32_t bit = 0;
    while ((word >> bit & 1) == 0) ++bit;
    return bit;
  }
};

struct SumChunks {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kAhead = 4;  // payloads whose elements are loaded at a time
  static constexpr std::uint32_t kEach = 2;   // elements of each, per thread
  struct Shared {
    alignas(16) float sums[kSumChunk];
    std::uint32_t fresh[kChunkWords];  // sectors that receive a value
    std::uint32_t old[kChunkWords];    // sectors that had one
    std::uint32_t begins[kMaxPayloads];
    std::uint32_t ends[kMaxPayloads];
  };

  PayloadTable payloads;
  SumWindow window;
  const std::uint32_t* starts;
  float* out;
  std::uint32_t* touched;  // or null
  float scale;
  bool add;  // to the content of `out`: not the first payloads

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    // Relative to `out`; negative for a first chunk that begins before it.
    const std::int64_t lo = static_cast<std::int64_t>(block.block()) * kSumChunk - window.skew;
    const unsigned t = block.thread();
    if (t < payloads.size) {
      const std::uint32_t* const of_payload = starts + std::size_t{t} * (window.chunks + 1);
      shared.begins[t] = of_payload[block.block()];
      shared.ends[t] = of_payload[block.block() + 1];
    }
    if (touched != nullptr && t < kChunkWords) {
      shared.fresh[t] = 0;
      shared.old[t] = touched[block.block() * kChunkWords + t];
    }
    for (std::uint32_t i = 4 * t; i < kSumChunk; i += 4 * kThreads) {
      Float4 sums = {};
      if (add) {
        for (std::uint32_t v = 0; v < 4; ++v) sums.v[v] = Has(lo + i + v) ? out[lo + i + v] : 0.0f;
      }
      *reinterpret_cast<Float4*>(shared.sums + i) = sums;
    }
    block.Sync();
    const auto base = static_cast<std::uint32_t>(static_cast<std::int64_t>(window.first) + lo);
    for (std::uint32_t first = 0; first < payloads.size; first += kAhead) {
      std::uint32_t index[kAhead][kEach];  // `base` is subtracted after all loads
      float values[kAhead][kEach];
      for (std::uint32_t a = 0; a < kAhead; ++a) {
        const std::uint32_t p = first + a;
        for (std::uint32_t e = 0; e < kEach; ++e) {
          index[a][e] = base + kSumChunk;  // in no chunk
          if (p >= payloads.size) continue;
          const std::uint32_t i = shared.begins[p] + t + e * kThreads;
          if (i >= shared.ends[p]) continue;
          index[a][e] = payloads.indices[p][i];
          values[a][e] = payloads.values[p][i];
        }
      }
      for (std::uint32_t a = 0; a < kAhead; ++a) {
        const std::uint32_t p = first + a;
        if (p >= payloads.size) break;
        for (std::uint32_t e = 0; e < kEach; ++e) {
          Add(block, shared, index[a][e] - base, values[a][e]);
        }
        for (std::uint32_t i = shared.begins[p] + t + kEach * kThreads; i < shared.ends[p];
             i += kThreads) {
          Add(block, shared, payloads.indices[p][i] - base, payloads.values[p][i]);
        }
        block.Sync();
      }
    }
    for (std::uint32_t i = 4 * t; i < kSumChunk; i += 4 * kThreads) {
      if (touched != nullptr) {
        const std::uint32_t sector = i / kSector;
        const std::uint32_t word = shared.fresh[sector / 32] | shared.old[sector / 32];
        if ((word >> sector % 32 & 1) == 0) continue;
      }
      Write(lo + i, *reinterpret_cast<const Float4*>(shared.sums + i));
    }
    if (touched != nullptr && t < kChunkWords) {
      touched[block.block() * kChunkWords + t] = shared.fresh[t] | (add ? shared.old[t] : 0);
    }
  }

 private:
  SPARFUSE_DEVICE bool Has(std::int64_t i) const {
    return static_cast<std::uint64_t>(i) < window.n;  // wraps below 0
  }

  // An offset outside the chunk belongs to a corrupt payload, or to no element.
  SPARFUSE_DEVICE void Add(auto& block, Shared& shared, std::uint32_t offset, float value) const {
    if (offset >= kSumChunk) return;
    shared.sums[offset] += value;
    if (touched == nullptr) return;
    const std::uint32_t sector = offset / kSector;
    const std::uint32_t bit = std::uint32_t{1} << sector % 32;
    if ((shared.fresh[sector / 32] & bit) == 0) block.AtomicOr(&shared.fresh[sector / 32], bit);
  }

  SPARFUSE_DEVICE void Write(std::int64_t at, Float4 sums) const {
    for (float& sum : sums.v) sum *= scale;
    if (Has(at) && Has(at + 3)) {
      StoreQuad(out + at, sums);
      return;
    }
    for (std::uint32_t v = 0; v < 4; ++v) {
      if (Has(at + v)) out[at + v] = sums.v[v];
    }
  }
};

struct ScaleElements {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  const float* in;
  float* out;
  float scale;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    Float4 x[kQuadsPerThread];
    for (int j = 0; j < kQuadsPerThread; ++j) x[j] = quads.Load(in, ElementwiseQuad(block, j));
    for (int j = 0; j < kQuadsPerThread; ++j) {
      for (float& value : x[j].v) value *= scale;
      quads.Store(out, ElementwiseQuad(block, j), x[j]);
    }
  }
};

SPARFUSE_DEVICE bool IsFinite(float x) {
  return x - x == 0.0f;  // a NaN for a NaN and an infinity
}

struct CopyFiniteElements {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  const float* from;
  float* to;
  std::uint32_t* not_finite;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    Float4 x[kQuadsPerThread];
    for (int j = 0; j < kQuadsPerThread; ++j) x[j] = quads.Load(from, ElementwiseQuad(block, j));
    for (int j = 0; j < kQuadsPerThread; ++j) {
      const std::uint32_t q = ElementwiseQuad(block, j);
      quads.Store(to, q, x[j]);
      for (unsigned v = 0; v < 4; ++v) {
        if (IsFinite(x[j].v[v])) continue;
        block.AtomicMax(not_finite, NotFiniteCode(static_cast<std::uint32_t>(quads.At(q, v))));
      }
    }
  }
};

inline constexpr std::uint32_t kMaxParts = 64;  // of one launch

struct PartTable {
  const std::uint32_t* indices[kMaxParts];
  const float* values[kMaxParts];
  const SlotReport* reports[kMaxParts];
  std::uint32_t capacities[kMaxParts];
  std::uint32_t bases[kMaxParts];
  std::uint32_t size;

  SPARFUSE_DEVICE std::uint32_t Count(std::uint32_t p) const {
    if (p >= size) return 0;
    const std::uint32_t count = reports[p]->count;
    return count < capacities[p] ? count : capacities[p];
  }
};

// Counts the parts of one launch: *before = *total, *total += their elements. `first`: takes *total
// as 0.
struct CountParts {
  static constexpr int kThreads = kMaxParts;
  PartTable parts;
  std::uint32_t* before;
  std::uint32_t* total;
  bool first;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t sum = block.Sum(parts.Count(block.thread()));
    if (block.thread() != 0) return;
    *before = first ? 0 : *total;
    *total = *before + sum;
  }
};

struct MergeParts {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 4;
  static constexpr std::uint32_t kPerBlock = kThreads * kPerThread;
  struct Shared {
    std::uint32_t begins[kMaxParts];
  };

  PartTable parts;
  std::uint32_t first_block[kMaxParts + 1];  // the first block of part p
  std::uint32_t* indices;
  float* values;                // null: after the indices
  const std::uint32_t* before;  // elements of earlier launches; null: there are none
  const std::uint32_t* total;   // elements of all launches; unused if `before` is null
  std::uint32_t* count;

  // A slot's capacity is usually four times the selected count.
  static std::uint32_t BlocksFor(std::size_t capacity) {
    return static_cast<std::uint32_t>(capacity / (4 * kPerBlock)) + 1;
  }

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    std::uint32_t all = 0;
    const std::uint32_t begin = block.ExclusiveSum(parts.Count(block.thread()), &all);
    if (block.thread() < kMaxParts) shared.begins[block.thread()] = begin;
    block.Sync();
    if (before != nullptr) all = *total;
    if (block.block() == 0 && block.thread() == 0) *count = all;

    std::uint32_t p = 0;
    while (block.block() >= first_block[p + 1]) ++p;
    const std::uint32_t to = shared.begins[p] + (before == nullptr ? 0 : *before);
    float* const to_values = values == nullptr ? reinterpret_cast<float*>(indices + all) : values;
    const std::uint32_t* const from = parts.indices[p];
    const float* const from_values = parts.values[p];
    const std::uint32_t size = parts.Count(p);
    const std::uint32_t step = (first_block[p + 1] - first_block[p]) * kPerBlock;
    for (std::uint32_t at = (block.block() - first_block[p]) * kPerBlock; at < size; at += step) {
      std::uint32_t index[kPerThread];
      float value[kPerThread];
      for (std::uint32_t j = 0; j < kPerThread; ++j) {
        const std::uint32_t i = at + j * kThreads + block.thread();
        index[j] = i < size ? from[i] : 0;
        value[j] = i < size ? from_values[i] : 0.0f;
      }
      for (std::uint32_t j = 0; j < kPerThread; ++j) {
        const std::uint32_t i = at + j * kThreads + block.thread();
        if (i >= size) continue;
        indices[to + i] = index[j] + parts.bases[p];
        to_values[to + i] = value[j];
      }
    }
  }
};

// The first position in [0, count) whose index is not below `bound`, or count.
SPARFUSE_DEVICE std::uint32_t FirstNotBelow(const std::uint32_t* indices, std::uint32_t count,
                                            std::uint32_t bound) {
  std::uint32_t begin = 0;
  while (begin < count) {
    const std::uint32_t middle = begin + (count - begin) / 2;
    if (indices[middle] < bound) {
      begin = middle + 1;
    } else {
      count = middle;
    }
  }
  return begin;
}

// A warp takes a piece of the range. For each tensor in the piece it checks whether an element was
// selected, and if not, whether an unsent element is not zero.
struct CountMissingTensors {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerWarp = 4096;
  static constexpr std::uint32_t kPerBlock = kThreads / kWarp * kPerWarp;

  const float* unsent;
  std::uint32_t n;
  const std::uint32_t* indices;
  std::uint32_t capacity;
  const SlotReport* report;
  const std::uint32_t* bounds;  // [tensors + 1]
  std::uint32_t tensors;
  std::uint32_t* seen;  // [tensors], zero before; nonzero: already counted
  std::uint64_t* missing;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint64_t at =
        (std::uint64_t{block.block()} * block.kWarps + block.warp()) * kPerWarp;
    if (at >= n) return;
    const std::uint32_t count = report->count < capacity ? report->count : capacity;
    if (tensors == 1 && count > 0) return;
    const auto begin = static_cast<std::uint32_t>(at);
    const std::uint32_t end = n - begin < kPerWarp ? n : begin + kPerWarp;
    // The last tensor that begins at `begin` or before it.
    std::uint32_t tensor = FirstNotBelow(bounds, tensors, begin + 1) - 1;
    for (; tensor < tensors && bounds[tensor] < end; ++tensor) {
      const std::uint32_t tensor_begin = bounds[tensor];
      const std::uint32_t tensor_end = bounds[tensor + 1];
      const std::uint32_t first = FirstNotBelow(indices, count, tensor_begin);
      if (first < count && indices[first] < tensor_end) continue;
      const bool found = HasSomething(block, tensor_begin < begin ? begin : tensor_begin,
                                      tensor_end < end ? tensor_end : end);
      if (!found || block.lane() != 0) continue;
      if (block.AtomicOr(&seen[tensor], 1u) == 0) block.AtomicAdd(missing, std::uint64_t{1});
    }
  }

 private:
  SPARFUSE_DEVICE bool HasSomething(auto& block, std::uint32_t begin, std::uint32_t end) const {
    constexpr std::uint32_t kLoads = 8;
    for (std::uint64_t at = begin; at < end; at += kLoads * kWarp) {
      bool something = false;
      for (std::uint32_t j = 0; j < kLoads; ++j) {
        const std::uint64_t i = at + j * kWarp + block.lane();
        something |= i < end && unsent[i] != 0.0f;
      }
      if (block.Ballot(something) != 0) return true;
    }
    return false;
  }
};

}  // namespace sparfuse::gpu

namespace sparfuse {

// The table of up to kMaxPayloads payloads. number: of the first one.
gpu::PayloadTable PayloadTableOf(std::span<const DevicePayload> payloads, std::size_t number);

}  // namespace sparfuse

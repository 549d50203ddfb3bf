// Encodes and decodes payloads in kernels (payload_coding.hpp).
//
// Encoding reads the payload and writes the coded bytes. With delta indices, a first launch reads
// the indices to count escapes. Every block of the second launch then sums the escapes before it.
//
// Decoding gaps. A word of two bytes is a gap, an escape, or half of an escaped gap, which depends
// on all words before it through one of three states. So a word is a function from state to state,
// and these functions compose. Each block sums its words for every state that it may begin with,
// one block chains the results, and a third launch writes the indices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/coding/payload_coding.hpp"
#include "core/coding/quantizers/scalar_codes.hpp"
#include "core/device/kernel.hpp"
#include "core/payload/accumulate_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr std::uint32_t kPayloadMagic = 'S' | 'P' << 8 | 1 << 16;
inline constexpr std::uint32_t kEscape = 65535;

// The parts of a coded payload.
struct CodedLayout {
  bool f16;
  bool delta;

  SPARFUSE_HOST_DEVICE std::uint32_t Header() const {
    return kPayloadMagic | (f16 ? 1u << 24 : 0u) | (delta ? 2u << 24 : 0u);
  }
  SPARFUSE_HOST_DEVICE std::uint64_t ValueBytes(std::uint64_t count) const {
    return f16 ? (count * 2 + 3) / 4 * 4 : count * 4;
  }
  SPARFUSE_HOST_DEVICE std::uint64_t IndicesAt(std::uint64_t count) const {
    return kPayloadHeaderBytes + ValueBytes(count);
  }
};

SPARFUSE_DEVICE std::uint32_t CountOf(std::uint32_t count, const std::uint32_t* word) {
  return word != nullptr && *word < count ? *word : count;
}

struct RoundToHalves {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerBlock = kThreads;
  const std::uint32_t* indices;
  float* values;
  const SlotReport* report;
  std::uint32_t capacity;
  float* residual;  // or null

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t count = CountOf(capacity, &report->count);
    const std::uint64_t step = std::uint64_t{block.blocks()} * kPerBlock;
    for (std::uint64_t i = std::uint64_t{block.block()} * kPerBlock + block.thread(); i < count;
         i += step) {
      const float value = values[i];
      const float rounded = FloatOfHalf(HalfOf(value));
      values[i] = rounded;
      if (residual != nullptr) residual[indices[i]] += value - rounded;
    }
  }
};

inline constexpr std::uint32_t kCodingPerThread = 8;  // consecutive elements, or words of two bytes

struct EncodeSource {
  const std::uint32_t* indices;
  const float* values;
  std::uint32_t capacity;
  const std::uint32_t* count_word;  // or null

  // The gap before element i, which exists.
  SPARFUSE_DEVICE std::uint32_t Gap(std::uint32_t i) const {
    return indices[i] - (i == 0 ? 0 : indices[i - 1]);
  }
};

struct CountEscapes {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerBlock = kThreads * kCodingPerThread;
  EncodeSource source;
  std::uint32_t* escapes;  // [blocks]

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t count = CountOf(source.capacity, source.count_word);
    if (std::uint64_t{block.block()} * kPerBlock >= count) return;
    std::uint32_t own = 0;
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) {
      const std::uint32_t i = block.block() * kPerBlock + j * kThreads + block.thread();
      if (i < count && source.Gap(i) >= kEscape) ++own;
    }
    own = block.Sum(own);
    if (block.thread() == 0) escapes[block.block()] = own;
  }
};

struct EncodeElements {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerBlock = kThreads * kCodingPerThread;
  EncodeSource source;
  CodedLayout layout;
  const std::uint32_t* escapes;  // of delta indices
  std::byte* out;                // 4-byte aligned
  std::uint64_t room;
  std::uint32_t* out_bytes;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t count = CountOf(source.capacity, source.count_word);
    const bool first = block.block() == 0 && block.thread() == 0;
    if (first) {
      auto* const header = reinterpret_cast<std::uint32_t*>(out);
      header[0] = layout.Header();
      header[1] = count;
      if (layout.f16 && count % 2 != 0) Halves()[count] = 0;
      if (!layout.delta || count == 0) *out_bytes = Bytes(count, 0);
    }
    if (std::uint64_t{block.block()} * kPerBlock >= count) return;
    const std::uint32_t begin = block.block() * kPerBlock;
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) {
      const std::uint32_t i = begin + j * kThreads + block.thread();
      if (i >= count) continue;
      const float value = source.values[i];
      if (layout.f16) {
        Halves()[i] = static_cast<std::uint16_t>(HalfOf(value));
      } else {
        reinterpret_cast<float*>(out + kPayloadHeaderBytes)[i] = value;
      }
      if (!layout.delta) {
        reinterpret_cast<std::uint32_t*>(out + layout.IndicesAt(count))[i] = source.indices[i];
      }
    }
    if (layout.delta) EncodeGaps(block, begin, count);
  }

 private:
  SPARFUSE_DEVICE std::uint16_t* Halves() const {
    return reinterpret_cast<std::uint16_t*>(out + kPayloadHeaderBytes);
  }
  SPARFUSE_DEVICE std::uint32_t Bytes(std::uint32_t count, std::uint32_t escaped) const {
    return static_cast<std::uint32_t>(layout.IndicesAt(count) +
                                      std::uint64_t{count} * (layout.delta ? 2 : 4) +
                                      std::uint64_t{escaped} * 4);
  }

  SPARFUSE_DEVICE void EncodeGaps(auto& block, std::uint32_t begin, std::uint32_t count) const {
    std::uint32_t before = 0;
    for (std::uint32_t b = block.thread(); b < block.block(); b += kThreads) before += escapes[b];
    before = block.Sum(before);
    const std::uint32_t own_begin = begin + block.thread() * kCodingPerThread;
    std::uint32_t gaps[kCodingPerThread];
    std::uint32_t own = 0;
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) {
      gaps[j] = own_begin + j < count ? source.Gap(own_begin + j) : 0;
      if (gaps[j] >= kEscape) ++own;
    }
    std::uint32_t all = 0;
    std::uint32_t escaped = before + block.ExclusiveSum(own, &all);
    if (block.thread() == 0 && begin + kPerBlock >= count) *out_bytes = Bytes(count, before + all);
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) {
      const std::uint32_t i = own_begin + j;
      if (i >= count) break;
      const std::uint64_t at =
          layout.IndicesAt(count) + std::uint64_t{i} * 2 + std::uint64_t{escaped} * 4;
      const bool escape = gaps[j] >= kEscape;
      // Negative gaps, a mistake of the caller, may need more room than there is.
      if (at + (escape ? 6 : 2) > room) break;
      auto* const to = reinterpret_cast<std::uint16_t*>(out + at);
      to[0] = static_cast<std::uint16_t>(escape ? kEscape : gaps[j]);
      if (!escape) continue;
      to[1] = static_cast<std::uint16_t>(gaps[j]);
      to[2] = static_cast<std::uint16_t>(gaps[j] >> 16);
      ++escaped;
    }
  }
};

// --- decoding

// The states in which a word of the gaps is read.
inline constexpr std::uint32_t kGap = 0;   // a gap or an escape
inline constexpr std::uint32_t kHigh = 1;  // the upper half of an escaped gap
inline constexpr std::uint32_t kLow = 2;   // the lower half

// A map from state to state, two bits for each.
using Transition = std::uint32_t;
inline constexpr Transition kIdentity = 0 | 1 << 2 | 2 << 4;

SPARFUSE_DEVICE std::uint32_t Follow(Transition transition, std::uint32_t state) {
  return transition >> (2 * state) & 3;
}
SPARFUSE_DEVICE Transition Compose(Transition first, Transition second) {
  return Follow(second, Follow(first, 0)) | Follow(second, Follow(first, 1)) << 2 |
         Follow(second, Follow(first, 2)) << 4;
}

// For a run of words: the number of elements that begin there, above 48 bits for the sum of their
// gaps.
using GapTotals = std::uint64_t;
inline constexpr int kCountShift = 48;
inline constexpr GapTotals kOneElement = GapTotals{1} << kCountShift;

struct GapTile {
  GapTotals totals[3];  // by the state that the tile begins with
  Transition transition;
};

// The result of the words before a tile.
struct GapStart {
  std::uint64_t index;
  std::uint32_t element;
  std::uint32_t state;
};

struct CodedPayload {
  const std::byte* bytes;  // 4-byte aligned
  std::uint64_t size;
  CodedLayout layout;

  // Reads the header's count; false if header or length are wrong.
  SPARFUSE_DEVICE bool Read(std::uint32_t capacity, std::uint32_t* count) const {
    if (size < kPayloadHeaderBytes) return false;
    const auto* const header = reinterpret_cast<const std::uint32_t*>(bytes);
    *count = header[1];
    if (header[0] != layout.Header() || *count > capacity) return false;
    const std::uint64_t at = layout.IndicesAt(*count);
    if (!layout.delta) return size == at + std::uint64_t{*count} * 4;
    return size >= at + std::uint64_t{*count} * 2 && size % 2 == 0 && (*count > 0 || size == at);
  }
  SPARFUSE_DEVICE const std::uint16_t* Words(std::uint32_t count) const {
    return reinterpret_cast<const std::uint16_t*>(bytes + layout.IndicesAt(count));
  }
  SPARFUSE_DEVICE std::uint64_t WordCount(std::uint32_t count) const {
    return (size - layout.IndicesAt(count)) / 2;
  }
};

// The words of a thread, and their results.
struct OwnWords {
  std::uint32_t words[kCodingPerThread];
  std::uint32_t size;

  SPARFUSE_DEVICE void Load(const std::uint16_t* from, std::uint64_t begin, std::uint64_t end) {
    size = begin >= end                     ? 0
           : end - begin < kCodingPerThread ? static_cast<std::uint32_t>(end - begin)
                                            : kCodingPerThread;
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) words[j] = j < size ? from[begin + j] : 0;
  }

  static SPARFUSE_DEVICE std::uint32_t Next(std::uint32_t state, std::uint32_t word) {
    if (state == kGap) return word == kEscape ? kLow : kGap;
    return state - 1;
  }

  SPARFUSE_DEVICE GapTotals Total(std::uint32_t state, std::uint32_t* end_state) const {
    GapTotals totals = 0;
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) {
      if (j >= size) break;
      if (state == kGap) totals += kOneElement + (words[j] == kEscape ? 0 : words[j]);
      if (state == kLow) totals += words[j];
      if (state == kHigh) totals += GapTotals{words[j]} << 16;
      state = Next(state, words[j]);
    }
    *end_state = state;
    return totals;
  }
};

template <int kWarps>
struct TransitionShared {
  Transition of_warps[kWarps];
};

// Returns the composed transition of all threads before the calling one; *all: of the block.
template <class Block>
SPARFUSE_DEVICE Transition ComposeBefore(Block& block, TransitionShared<Block::kWarps>& shared,
                                         Transition own, Transition* all) {
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const Transition before = block.ShuffleUp(own, distance);
    if (block.lane() >= distance) own = Compose(before, own);
  }
  if (block.lane() == kWarp - 1) shared.of_warps[block.warp()] = own;
  Transition before = block.ShuffleUp(own, 1);
  if (block.lane() == 0) before = kIdentity;
  block.Sync();
  Transition warps = kIdentity;
  *all = kIdentity;
  for (unsigned w = 0; w < Block::kWarps; ++w) {
    if (w == block.warp()) warps = *all;
    *all = Compose(*all, shared.of_warps[w]);
  }
  return Compose(warps, before);
}

// Decodes header, values and u32 indices; with delta indices, sums the tiles.
struct DecodeElements {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerBlock = kThreads * kCodingPerThread;
  using Shared = TransitionShared<kThreads / kWarp>;
  CodedPayload payload;
  std::uint64_t n;
  std::uint32_t capacity;
  std::uint32_t* indices;
  float* values;
  std::uint32_t* count_word;
  GapTile* tiles;
  std::uint32_t rank;
  std::uint64_t* fault;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    std::uint32_t count = 0;
    const bool first = block.block() == 0 && block.thread() == 0;
    if (!payload.Read(capacity, &count)) {
      if (first) {
        *count_word = 0;
        block.AtomicMax(fault, PayloadFaultCode(rank, 0));
      }
      return;
    }
    const auto* const halves =
        reinterpret_cast<const std::uint16_t*>(payload.bytes + kPayloadHeaderBytes);
    if (first) {
      *count_word = count;
      if (payload.layout.f16 && count % 2 != 0 && halves[count] != 0) {
        block.AtomicMax(fault, PayloadFaultCode(rank, 0));
      }
    }
    const auto* const coded_indices =
        reinterpret_cast<const std::uint32_t*>(payload.bytes + payload.layout.IndicesAt(count));
    const std::uint64_t begin = std::uint64_t{block.block()} * kPerBlock;
    for (std::uint32_t j = 0; j < kCodingPerThread; ++j) {
      const std::uint64_t i = begin + j * kThreads + block.thread();
      if (i >= count) continue;
      const float value =
          payload.layout.f16 ? FloatOfHalf(halves[i]) : reinterpret_cast<const float*>(halves)[i];
      bool good = payload.layout.f16 ? (halves[i] & 0x7fffu) < kHalfInfinity : IsFinite(value);
      values[i] = value;
      if (!payload.layout.delta) {
        const std::uint32_t index = coded_indices[i];
        indices[i] = index;
        good = good && index < n && (i == 0 || index > coded_indices[i - 1]);
      }
      if (!good) {
        block.AtomicMax(fault, PayloadFaultCode(rank, static_cast<std::uint32_t>(i)));
      }
    }
    if (payload.layout.delta && begin < payload.WordCount(count)) SumTile(block, shared, count);
  }

 private:
  SPARFUSE_DEVICE void SumTile(auto& block, Shared& shared, std::uint32_t count) const {
    OwnWords own;
    own.Load(payload.Words(count),
             std::uint64_t{block.block()} * kPerBlock + block.thread() * kCodingPerThread,
             payload.WordCount(count));
    GapTotals totals[3];
    Transition transition = 0;
    for (std::uint32_t state = 0; state < 3; ++state) {
      std::uint32_t end = 0;
      totals[state] = own.Total(state, &end);
      transition |= end << (2 * state);
    }
    Transition all = 0;
    const Transition before = ComposeBefore(block, shared, transition, &all);
    for (std::uint32_t state = 0; state < 3; ++state) {
      const std::uint32_t begins = Follow(before, state);
      const GapTotals of_tile = block.Sum(begins == 0   ? totals[0]
                                          : begins == 1 ? totals[1]
                                                        : totals[2]);
      if (block.thread() == 0) tiles[block.block()].totals[state] = of_tile;
    }
    if (block.thread() == 0) tiles[block.block()].transition = all;
  }
};

// One block. Computes the start of every tile, and checks the payload's length against the count.
struct ChainTiles {
  static constexpr int kThreads = 256;
  struct Shared {
    GapTile tiles[kThreads];
    GapStart starts[kThreads];
  };
  CodedPayload payload;
  const std::uint32_t* count_word;
  const GapTile* tiles;
  GapStart* starts;
  std::uint32_t rank;
  std::uint64_t* fault;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t count = *count_word;
    if (count == 0) return;
    constexpr std::uint32_t kTile = DecodeElements::kPerBlock;
    const std::uint64_t size = (payload.WordCount(count) + kTile - 1) / kTile;
    GapStart at{0, 0, kGap};
    for (std::uint64_t begin = 0; begin < size; begin += kThreads) {
      const std::uint64_t t = begin + block.thread();
      if (t < size) shared.tiles[block.thread()] = tiles[t];
      block.Sync();
      if (block.thread() == 0) {
        const std::uint64_t left = size - begin;
        for (std::uint32_t i = 0; i < kThreads && i < left; ++i) {
          shared.starts[i] = at;
          const GapTotals totals = shared.tiles[i].totals[at.state];
          at.index += totals & (kOneElement - 1);
          at.element += static_cast<std::uint32_t>(totals >> kCountShift);
          at.state = Follow(shared.tiles[i].transition, at.state);
        }
      }
      block.Sync();
      if (t < size) starts[t] = shared.starts[block.thread()];
      block.Sync();
    }
    if (block.thread() == 0 && (at.element != count || at.state != kGap)) {
      block.AtomicMax(fault, PayloadFaultCode(rank, at.element < count ? at.element : count));
    }
  }
};

struct WriteIndices {
  static constexpr int kThreads = DecodeElements::kThreads;
  static constexpr std::uint32_t kPerBlock = DecodeElements::kPerBlock;
  using Shared = TransitionShared<kThreads / kWarp>;
  CodedPayload payload;
  std::uint64_t n;
  const std::uint32_t* count_word;
  const GapStart* starts;
  std::uint32_t* indices;
  std::uint32_t rank;
  std::uint64_t* fault;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t count = *count_word;
    if (count == 0) return;
    const std::uint64_t words = payload.WordCount(count);
    if (std::uint64_t{block.block()} * kPerBlock >= words) return;
    const GapStart start = starts[block.block()];
    const std::uint16_t* const from = payload.Words(count);
    const std::uint64_t begin =
        std::uint64_t{block.block()} * kPerBlock + block.thread() * kCodingPerThread;
    OwnWords own;
    own.Load(from, begin, words);
    Transition transition = 0;
    for (std::uint32_t state = 0; state < 3; ++state) {
      std::uint32_t end = 0;
      own.Total(state, &end);
      transition |= end << (2 * state);
    }
    Transition all = 0;
    std::uint32_t state = Follow(ComposeBefore(block, shared, transition, &all), start.state);
    std::uint32_t end = 0;
    GapTotals of_block = 0;
    const GapTotals before = block.ExclusiveSum(own.Total(state, &end), &of_block);
    std::uint64_t index = start.index + (before & (kOneElement - 1));
    std::uint32_t element = start.element + static_cast<std::uint32_t>(before >> kCountShift);
    for (std::uint32_t j = 0; j < own.size; ++j) {
      const std::uint32_t word = own.words[j];
      bool good = true;
      bool ends = state == kHigh;
      if (state == kGap) {
        ++element;
        ends = word != kEscape;
        if (ends) index += word;
        good = word != 0 || element == 1;
      } else if (state == kLow) {
        index += word;
      } else {
        index += std::uint64_t{word} << 16;
        good = word != 0 || from[begin + j - 1] == kEscape;  // otherwise it needs no escape
      }
      state = OwnWords::Next(state, word);
      if (!ends || element > count) continue;
      indices[element - 1] = static_cast<std::uint32_t>(index);
      if (!good || index >= n) block.AtomicMax(fault, PayloadFaultCode(rank, element - 1));
    }
  }
};

}  // namespace sparfuse::gpu

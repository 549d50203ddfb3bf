// Kernels of device_scan.hpp.
//
// Expected on an H200 (4.8 TB/s, 132 multiprocessors), for n = 25.6M at 1 %, without feedback:
//   Prepare    1 block      a sample of 16384 elements (64 kB), two digits in shared memory    4 us
//              (warm: zeroes 50 kB in L2                                                      2 us)
//   Collect    1042 blocks  102 MB once; 3 MB of candidates                                  24 us
//   Send       1 + 1042     3 MB from L2 twice, 2 MB into the slot                            6 us
//   SendExact  1024 blocks  nothing: they see that they are not wanted                        2 us
// With feedback Collect moves 307 MB. Where the candidates do not hold the k largest, SendExact
// reads x four times, or five of it with the second look at what L2 does not keep.
//
// In Collect a thread has four 16-byte loads in flight (eight with feedback), and 64 warps of a
// multiprocessor 128 kB: five times what latency times bandwidth asks for. An element costs a
// handful of instructions: addition, comparison, a bit of a mask. Ranks within a warp come from one
// scan of four counts packed into a word; of barriers there are two for 4096 elements. Candidates
// go to an arena, where one atomic addition reserves room for a chunk: which chunk comes first
// depends on timing, what is read through the chunks' runs does not.
//
// The passes over candidates, and those over x when the exact passes are wanted, are phases of one
// launch each: a block of a later phase waits for those before, which have lower numbers and so
// have started. Where blocks write side by side, each adds up what those before it have announced
// (SumBefore); with some thousand blocks that is cheaper than a chain of look-backs.
//
// RAFT's select_k and CUB's device-wide top-k read all of x for the first digit and again for the
// next, filtering into buffers as they go (J. Zhang, A. Naruse, X. Li, Y. Wang, "Parallel top-k
// algorithms on GPU: a comprehensive study and new methods", SC 2023). The sample takes the place
// of the first digit here, which leaves one pass; and the order of the output is that of the
// indices, ties included, which theirs leaves open.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/gpu/kernel.hpp"
#include "core/sparsify/device_scan.hpp"
#include "core/sparsify/random_stream.hpp"
#include "core/sparsify/rank_kernels.hpp"
#include "core/sparsify/sample.hpp"

namespace sparfuse::gpu {

SPARFUSE_DEVICE std::uint32_t KeyOf(float x) { return std::bit_cast<std::uint32_t>(x) & kAbsMask; }
SPARFUSE_DEVICE float MagnitudeOf(std::uint32_t key) { return std::bit_cast<float>(key); }

SPARFUSE_DEVICE std::uint32_t CountBits(std::uint32_t mask) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__popc(mask));
#else
  return static_cast<std::uint32_t>(std::popcount(mask));
#endif
}

// at: 16-byte aligned. Of a struct the compiler makes four stores where it sees the address
// elsewhere.
SPARFUSE_DEVICE void StoreVector(float* at, const Float4& x) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<float4*>(at) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
#else
  *reinterpret_cast<Float4*>(at) = x;
#endif
}

// Lanes of a mask before the calling one.
template <class Block>
SPARFUSE_DEVICE std::uint32_t LanesBefore(Block& block, std::uint32_t mask) {
  return CountBits(mask & ((1u << block.lane()) - 1));
}

// An x = gradient + residual in device memory.
struct DeviceSource {
  const float* gradient;
  float* residual;
  std::uint64_t n;
  bool pending;

  SPARFUSE_DEVICE float At(std::uint64_t i) const {
    if (pending) return gradient[i] + residual[i];
    return residual == nullptr ? gradient[i] : residual[i];
  }
};

template <class Block>
SPARFUSE_DEVICE void NoteIfNotFinite(Block& block, SlotReport* report, std::uint32_t key,
                                     std::uint64_t index) {
  if (key < kInfinityKey) return;
  block.AtomicMax(&report->not_finite, NotFiniteCode(static_cast<std::uint32_t>(index)));
}

// After a step: the key of its k-th magnitude, how many elements reached the bound, and whether
// they were too few or too many. WarmBound::Learn (warm_bound.hpp), for tensors of any size.
SPARFUSE_DEVICE void Learn(WarmWords* words, bool from_warm, std::uint32_t kth_key,
                           std::uint32_t candidates, std::uint32_t k, bool failed) {
  constexpr float kMaxMargin = 0.03f;
  constexpr float kMinMargin = 0.0005f;
  constexpr std::uint32_t kMaxPause = 64;
  if (words == nullptr) return;
  WarmWords next = *words;
  if (next.margin == 0) next.margin = kMaxMargin;
  if (next.next_pause == 0) next.next_pause = 1;
  if (from_warm) {
    const float surplus = static_cast<float>(candidates) / static_cast<float>(k);
    if (failed) {
      next.margin *= 4;
      next.pause = next.next_pause;
      next.next_pause = next.next_pause < kMaxPause / 2 ? 2 * next.next_pause : kMaxPause;
    } else {
      if (surplus > 1.5f) next.margin *= 0.85f;
      if (surplus < 1.1f) next.margin *= 1.5f;
      next.next_pause = 1;
    }
  } else if (next.pause > 0) {
    --next.pause;
  }
  if (next.margin > kMaxMargin) next.margin = kMaxMargin;
  if (next.margin < kMinMargin) next.margin = kMinMargin;
  const float kth = MagnitudeOf(kth_key);
  const float moved = kth > next.last ? kth - next.last : next.last - kth;
  const bool steady = moved <= kMaxMargin * next.last;
  next.key = steady && next.pause == 0 ? KeyOf(kth * (1 - next.margin)) : 0;
  next.last = kth;
  *words = next;
}

// --- Prepare -----------------------------------------------------------------------------------

inline constexpr std::size_t kMostSampled = 16384;

// Zeroes a control and finds control->lo: from the step before, from a sample, or 0.
struct Prepare {
  static constexpr const char* kName = "Prepare";
  static constexpr int kThreads = 1024;
  using Shared = RankShared;

  ScanControl* control;
  const std::uint32_t* only_if;
  const WarmWords* warm;
  DeviceSource source;
  RandomStream stream;
  std::uint32_t lines;  // of the sample
  std::uint32_t rank;   // of the bound in the sample; 0: the bound is 0
  std::uint32_t* own;   // of the caller, zeroed in any case
  std::uint32_t own_size;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const unsigned thread = block.thread();
    const bool wanted = only_if == nullptr || *only_if != 0;
    Zero(block, own, own_size);
    if (wanted) {
      Zero(block, control->bins, kScanBins);
      Zero(block, control->counted, kMostCounting);
      Zero(block, control->refined, kMostCounting);
      Zero(block, control->exact_bins, 3 * kExactBins);
      Zero(block, control->exact_done, 3 * kExactSpans);
      Zero(block, control->exact_sums, kExactSpans);
      Zero(block, control->sums, kMostSpans);
    }
    const std::uint32_t warm_key = wanted && warm != nullptr ? warm->key : 0;
    std::uint32_t lo = warm_key;
    if (wanted && warm_key == 0 && rank > 0) lo = Sampled(block, shared);
    if (thread != 0) return;
    control->active = wanted ? 1 : 0;
    control->exact = 0;
    control->recollect = 0;
    if (!wanted) return;
    control->lo = lo;
    control->warm = warm_key > 0 ? 1 : 0;
    control->count = 0;
    control->key = 0;
    control->least = 0;
    control->most = 0;
    control->first = 0;
    control->reaching = 0;
    control->mode = SendMode::kLargest;
    control->limit = 0;
    control->cut = 0;
    control->listed = 0;
    control->decided = 0;
    control->ready = 0;
  }

 private:
  template <class Block, class T>
  static SPARFUSE_DEVICE void Zero(Block& block, T* words, std::size_t count) {
    for (std::size_t i = block.thread(); i < count; i += Block::kThreads) words[i] = 0;
  }

  // Of a stratified random sample of 64-byte lines, as ForSampledLines takes it.
  template <class Block>
  SPARFUSE_DEVICE std::uint32_t Sampled(Block& block, Shared& shared) const {
    constexpr unsigned kEach = kMostSampled / kThreads;
    const unsigned sampled = lines * static_cast<unsigned>(kLine);
    const std::uint64_t all = source.n / kLine;
    std::uint32_t keys[kEach];
    for (unsigned e = 0; e < kEach; ++e) {
      const unsigned s = e * kThreads + block.thread();
      keys[e] = 0;
      if (s >= sampled) continue;
      const std::uint64_t line = s / kLine;
      const std::uint64_t first = line * all / lines;
      const std::uint64_t width = (line + 1) * all / lines - first;
      keys[e] = KeyOf(source.At((first + stream.Below(width, line)) * kLine + s % kLine));
    }
    constexpr int kCoarse = 9;  // of a key: 2^-14 of the magnitude
    return static_cast<std::uint32_t>(
        CutOfRank(block, shared, 31, kCoarse, rank, [&](const auto& count) {
          for (unsigned e = 0; e < kEach; ++e) {
            if (e * kThreads + block.thread() < sampled) count(keys[e]);
          }
        }));
  }
};

// --- Collect -----------------------------------------------------------------------------------

struct CandidateArrays {
  std::uint32_t* indices;
  float* values;
  std::uint32_t capacity;
  DeviceRun* runs;
};

template <class Measure>
struct Collect {
  static constexpr const char* kName = "Collect";
  static constexpr int kThreads = 256;
  static constexpr unsigned kVectors = kScanChunk / kThreads / 4;
  static constexpr unsigned kEach = 4 * kVectors;
  static_assert(kVectors == 4);  // their counts are packed into a word
  struct Shared {
    std::uint32_t bins[kScanBins];
    std::uint32_t counts[2][kThreads / kWarp];  // of two chunks in turn
    std::uint32_t offset[2];
  };

  DeviceSource source;
  std::uint32_t shift;
  std::uint32_t chunks;
  std::uint32_t chunks_per_span;
  ScanControl* control;
  CandidateArrays candidates;
  SlotReport* report;
  Measure measure;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::uint32_t lo = control->lo < kInfinityKey ? control->lo : kInfinityKey;
    for (unsigned b = block.thread(); b < kScanBins; b += kThreads) shared.bins[b] = 0;
    block.Sync();
    typename Measure::Part part = {};
    const std::uint32_t first = block.block() * chunks_per_span;
    std::uint32_t last = first + chunks_per_span;
    if (last > chunks) last = chunks;
    for (std::uint32_t chunk = first; chunk < last; ++chunk) {
      float x[kEach];
      // Of the first of the thread's vectors, whose neighbours are 32 lanes further on. Before x in
      // the first chunk, hence with a sign.
      const std::int64_t at = static_cast<std::int64_t>(chunk) * kScanChunk +
                              block.warp() * (kScanChunk / (kThreads / kWarp)) + block.lane() * 4 -
                              shift;
      const std::uint32_t valid = Load(block, chunk, at, x);
      std::uint32_t reach = 0;
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint32_t key = KeyOf(x[e]);
        if ((valid >> e & 1) != 0) measure.Add(part, x[e], key);
        reach |= static_cast<std::uint32_t>(key >= lo) << e;
      }
      Store(block, shared, chunk, at, x, reach & valid, lo);
    }
    block.Sync();
    for (unsigned b = block.thread(); b < kScanBins; b += kThreads) {
      if (shared.bins[b] > 0) block.AtomicAdd(&control->bins[b], shared.bins[b]);
    }
    measure.Store(block, part, block.block());
  }

 private:
  // The thread's elements of a chunk, written to the residual where the addition is pending.
  // Returns which of them are elements of x.
  template <class Block>
  SPARFUSE_DEVICE std::uint32_t Load(Block& block, std::uint32_t chunk, std::int64_t at,
                                     float* x) const {
    constexpr std::int64_t kStride = 4 * kWarp;
    const auto n = static_cast<std::int64_t>(source.n);
    const float* const from =
        source.pending || source.residual == nullptr ? source.gradient : source.residual;
    const bool whole = (chunk > 0 || shift == 0) &&
                       (static_cast<std::uint64_t>(chunk) + 1) * kScanChunk <= source.n + shift;
    if (!whole) {
      std::uint32_t valid = 0;
      for (unsigned e = 0; e < kEach; ++e) {
        const std::int64_t i = at + kStride * (e / 4) + e % 4;
        x[e] = 0;
        if (i < 0 || i >= n) continue;
        valid |= 1u << e;
        x[e] = from[i];
        if (source.pending) {
          x[e] += source.residual[i];
          source.residual[i] = x[e];
        }
      }
      return valid;
    }
    if ((reinterpret_cast<std::uintptr_t>(from + at) & 15) == 0) {
      for (unsigned v = 0; v < kVectors; ++v) {
        Put(block.LoadStreaming(reinterpret_cast<const Float4*>(from + at + kStride * v)),
            x + 4 * v);
      }
    } else {  // a residual is there, and lies otherwise
      for (unsigned e = 0; e < kEach; ++e) {
        x[e] = block.LoadStreaming(from + at + kStride * (e / 4) + e % 4);
      }
    }
    if (source.pending) {
      Float4 old[kVectors];
      for (unsigned v = 0; v < kVectors; ++v) {
        old[v] = block.LoadStreaming(
            reinterpret_cast<const Float4*>(source.residual + at + kStride * v));
      }
      for (unsigned v = 0; v < kVectors; ++v) {
        for (unsigned c = 0; c < 4; ++c) old[v].v[c] = x[4 * v + c] + old[v].v[c];
        StoreVector(source.residual + at + kStride * v, old[v]);
        Put(old[v], x + 4 * v);
      }
    }
    return (1u << kEach) - 1;
  }

  static SPARFUSE_DEVICE void Put(const Float4& from, float* to) {
    for (unsigned c = 0; c < 4; ++c) to[c] = from.v[c];
  }

  // The candidates of a chunk: bit e of `reach` is x[e].
  template <class Block>
  SPARFUSE_DEVICE void Store(Block& block, Shared& shared, std::uint32_t chunk, std::int64_t at,
                             const float* x, std::uint32_t reach, std::uint32_t lo) const {
    constexpr unsigned kWarps = kThreads / kWarp;
    const unsigned turn = chunk & 1;
    // A byte a vector: how many the lane has, the lanes up to it have, the warp has (128 at most).
    std::uint32_t before = 0;
    std::uint32_t totals = 0;
    const bool any = block.Ballot(reach != 0) != 0;
    if (any) {
      const std::uint32_t own = CountNibbles(reach);
      std::uint32_t sum = own;
      for (unsigned distance = 1; distance < kWarp; distance *= 2) {
        const std::uint32_t other = block.ShuffleUp(sum, distance);
        if (block.lane() >= distance) sum += other;
      }
      totals = block.Shuffle(sum, kWarp - 1);
      before = sum - own;
    }
    if (block.lane() == 0) shared.counts[turn][block.warp()] = SumOfBytes(totals);
    block.Sync();
    std::uint32_t to = 0;
    std::uint32_t count = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w == block.warp()) to = count;
      count += shared.counts[turn][w];
    }
    if (count == 0) {  // for all threads of the block
      if (block.thread() == 0) candidates.runs[chunk] = {0, 0, 0, 0};
      return;
    }
    if (block.thread() == 0) {
      const std::uint32_t offset = block.AtomicAdd(&control->count, count);
      candidates.runs[chunk] = {offset, count, 0, 0};
      shared.offset[turn] = offset;
    }
    block.Sync();
    if (!any) return;
    std::uint32_t largest = 0;
    for (unsigned e = 0; e < kEach; ++e) largest = KeyOf(x[e]) > largest ? KeyOf(x[e]) : largest;
    if (largest >= kInfinityKey) {
      for (unsigned e = 0; e < kEach; ++e) {
        NoteIfNotFinite(block, report, KeyOf(x[e]),
                        static_cast<std::uint64_t>(at + 4 * kWarp * (e / 4) + e % 4));
      }
    }
    const std::uint32_t offset = shared.offset[turn];
    const bool stored = offset < candidates.capacity && count <= candidates.capacity - offset;
    to += offset;
    for (unsigned e = 0; e < kEach; ++e) {
      const unsigned byte = 8 * (e / 4);
      if (e % 4 == 0 && e > 0) to += totals >> (byte - 8) & 0xff;
      if ((reach >> e & 1) == 0) continue;
      const std::uint32_t key = KeyOf(x[e]);
      const auto i = static_cast<std::uint64_t>(at + 4 * kWarp * (e / 4) + e % 4);
      const std::uint32_t bin = (key - lo) >> kScanShift;
      block.AtomicAdd(&shared.bins[bin < kScanBins ? bin : kScanBins - 1], 1u);
      if (!stored) continue;
      const std::uint32_t place =
          to + (before >> byte & 0xff) + CountBits(reach >> (e & ~3u) & ((1u << e % 4) - 1));
      candidates.indices[place] = static_cast<std::uint32_t>(i);
      candidates.values[place] = x[e];
    }
  }

  // Byte v: the bits of nibble v of 16.
  static SPARFUSE_DEVICE std::uint32_t CountNibbles(std::uint32_t mask) {
    mask -= mask >> 1 & 0x5555;
    mask = (mask & 0x3333) + (mask >> 2 & 0x3333);
    mask = (mask | mask << 8) & 0x00ff00ff;
    return (mask | mask << 4) & 0x0f0f0f0f;
  }
  static SPARFUSE_DEVICE std::uint32_t SumOfBytes(std::uint32_t bytes) {
    bytes = (bytes & 0x00ff00ff) + (bytes >> 8 & 0x00ff00ff);
    return (bytes & 0xffff) + (bytes >> 16);
  }
};

// Has RecollectOnDevice collect what reaches `lo`. Called by all threads of a block, the last of
// its launch that looks at the control.
template <class Block>
SPARFUSE_DEVICE void WantRecollected(Block& block, ScanControl* control, std::uint32_t lo) {
  block.Sync();
  for (unsigned b = block.thread(); b < kScanBins; b += Block::kThreads) control->bins[b] = 0;
  if (block.thread() != 0) return;
  control->lo = lo;
  control->count = 0;
  control->recollect = 1;
}

// --- Send --------------------------------------------------------------------------------------

inline constexpr unsigned kLoadsInFlight = 4;  // of a thread that looks through candidates

// f(position, key, whether there is one) for the share of block `self` of `blocks` in the first
// `count` candidates. The lanes of a warp call it together.
template <class Block, class F>
SPARFUSE_DEVICE void ForCandidates(Block& block, const CandidateArrays& candidates,
                                   std::uint32_t count, std::uint32_t self, std::uint32_t blocks,
                                   const F& f) {
  constexpr std::uint32_t kAtOnce = kLoadsInFlight * Block::kThreads;
  for (std::uint64_t first = std::uint64_t{self} * kAtOnce; first < count;
       first += std::uint64_t{blocks} * kAtOnce) {
    std::uint32_t keys[kLoadsInFlight];
    for (unsigned u = 0; u < kLoadsInFlight; ++u) {
      const std::uint64_t a = first + u * Block::kThreads + block.thread();
      keys[u] = a < count ? KeyOf(candidates.values[a]) : 0;
    }
    for (unsigned u = 0; u < kLoadsInFlight; ++u) {
      const std::uint64_t a = first + u * Block::kThreads + block.thread();
      f(static_cast<std::uint32_t>(a), keys[u], a < count);
    }
  }
}

// Appends, for each lane that has one, an element to a list of kListRoom; *listed counts those that
// found no room too. The lanes of a warp call it together.
template <class Block>
SPARFUSE_DEVICE std::uint32_t PlaceInList(Block& block, bool in, std::uint32_t* listed) {
  const std::uint32_t mask = block.Ballot(in);
  if (mask == 0) return kListRoom;
  std::uint32_t to = 0;
  if (block.lane() == 0) to = block.AtomicAdd(listed, CountBits(mask));
  to = block.Shuffle(to, 0) + LanesBefore(block, mask);
  return in ? to : kListRoom;
}

// Blocks of Send that look through candidates.
inline std::size_t LookingBlocks(std::size_t capacity) {
  return std::clamp<std::size_t>(capacity / 4096, 1, kMostCounting);
}

struct SendTarget {
  std::uint32_t* indices;
  float* values;
  std::uint32_t capacity;
  SlotReport* report;
  float* residual;  // or null
};

// Blocks [0, counting) count what reaches control->key and decide; [counting, counting + refining)
// find the cut of the k largest; the others send, each the candidates of some neighbouring chunks.
struct Send {
  static constexpr const char* kName = "Send";
  static constexpr int kThreads = 512;
  // On a multiprocessor there are four of them at a time.
  static constexpr std::size_t kMostSending = 4 * 132;
  struct Shared {
    RankShared rank;
    std::uint32_t at;
  };

  ScanControl* control;
  CandidateArrays candidates;
  std::uint64_t* list;
  WarmWords* warm;
  std::uint32_t k;
  std::uint32_t counting;
  std::uint32_t refining;
  std::uint32_t chunks;
  std::uint32_t chunks_each;  // of a block that sends
  SendTarget slot;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    if (block.block() < counting) {
      Count(block);
    } else if (block.block() < counting + refining) {
      Refine(block, shared);
    } else {
      Emit(block, block.block() - counting - refining);
    }
  }

 private:
  SPARFUSE_DEVICE std::uint32_t Lo() const {
    return control->lo < kInfinityKey ? control->lo : kInfinityKey;
  }
  SPARFUSE_DEVICE bool Stored() const { return control->count <= candidates.capacity; }

  template <class Block>
  SPARFUSE_DEVICE void Count(Block& block) const {
    if (control->decided != 0) return;  // by a kernel before
    const std::uint32_t key = control->key;
    const std::uint32_t lo = Lo();
    if (key > lo && Stored()) {
      std::uint32_t reaching = 0;
      ForCandidates(block, candidates, control->count, block.block(), counting,
                    [&](std::uint32_t, std::uint32_t own, bool) {
                      reaching += static_cast<std::uint32_t>(own >= key);
                    });
      reaching = block.Sum(reaching);
      if (block.thread() == 0 && reaching > 0) block.AtomicAdd(&control->reaching, reaching);
    }
    Announce(block, &control->counted[block.block()]);
    if (block.block() != counting - 1) return;
    Await(block, control->counted, counting);
    if (block.thread() == 0) {
      std::uint32_t reaching = control->reaching;
      if (key <= lo) reaching = control->count;  // at least
      const std::uint32_t most = control->most < slot.capacity ? control->most : slot.capacity;
      const bool known = key >= lo && Stored();
      if (known && reaching >= control->least && reaching <= most && reaching > 0) {
        control->mode = SendMode::kReaching;
        control->cut = CutOf(key);
        control->limit =
            control->first > 0 && control->first < reaching ? control->first : reaching;
      } else {
        control->mode = SendMode::kLargest;
        if (known && reaching == 0) {
          ++slot.report->fallbacks;
        } else if (key >= lo && (!Stored() || reaching > slot.capacity)) {
          ++slot.report->overflows;
        }
      }
      control->reaching = reaching;
    }
    Announce(block, &control->decided);
  }

  template <class Block>
  SPARFUSE_DEVICE void Refine(Block& block, Shared& shared) const {
    if (counting > 0) Await(block, &control->decided, 1);
    if (control->mode != SendMode::kLargest) return;
    const std::uint32_t self = block.block() - counting;
    const std::uint32_t count = control->count;
    const std::uint32_t lo = Lo();
    const bool enough = count >= k && Stored();
    RankedBin bin = {0, 0, 0};
    if (enough) {
      bin = FindRankedBin(block, shared.rank.bin, control->bins, kScanBins, k);
      ForCandidates(block, candidates, count, self, refining,
                    [&](std::uint32_t a, std::uint32_t key, bool is) {
                      const std::uint32_t own = key >= lo ? (key - lo) >> kScanShift : 0;
                      const bool in = is && (own < kScanBins ? own : kScanBins - 1) == bin.bin;
                      const std::uint32_t to = PlaceInList(block, in, &control->listed);
                      if (to < kListRoom) list[to] = OrderOf(key, candidates.indices[a]);
                    });
    }
    Announce(block, &control->refined[self]);
    if (self != refining - 1) return;

    Await(block, control->refined, refining);
    const std::uint32_t listed = control->listed;
    const bool found = enough && listed <= kListRoom;
    std::uint64_t cut = 0;
    if (found) {
      const std::uint64_t base = CutOf(lo + (bin.bin << kScanShift));
      const int bits = bin.bin == kScanBins - 1 ? 63 : 32 + kScanShift;
      cut = base + CutOfRank(block, shared.rank, bits, 0, k - bin.above, [&](const auto& count_in) {
              for (std::uint32_t i = block.thread(); i < listed; i += kThreads) {
                count_in(list[i] - base);
              }
            });
    }
    if (block.thread() == 0) {
      if (found) {
        control->cut = cut;
        control->limit = k;
        Learn(warm, control->warm != 0, static_cast<std::uint32_t>(cut >> 32), count, k, false);
      } else {
        control->exact = 1;
        if (slot.report->overflows + slot.report->fallbacks == 0) ++slot.report->fallbacks;
      }
    }
    Announce(block, &control->ready);
  }

  template <class Block>
  SPARFUSE_DEVICE void Emit(Block& block, std::uint32_t self) const {
    if (counting > 0) Await(block, &control->decided, 1);
    if (control->mode == SendMode::kLargest) Await(block, &control->ready, 1);
    const bool last_block = block.block() == block.blocks() - 1;
    if (block.thread() == 0 && last_block) slot.report->candidates += control->count;
    if (control->exact != 0) return;
    const std::uint64_t cut = control->cut;
    const bool all = cut <= CutOf(Lo());
    const std::uint32_t first = self * chunks_each;
    std::uint32_t last = first + chunks_each;
    if (last > chunks) last = chunks;

    // How many each run sends, by a warp a run.
    std::uint32_t own = 0;
    for (std::uint32_t c = first + block.warp(); c < last; c += Block::kWarps) {
      const DeviceRun run = candidates.runs[c];
      std::uint32_t selected = all ? run.count : 0;
      for (std::uint32_t j = 0; j < run.count && !all; j += kLoadsInFlight * kWarp) {
        bool reaching[kLoadsInFlight];
        for (unsigned u = 0; u < kLoadsInFlight; ++u) {
          reaching[u] = Reaches(run, j + u * kWarp + block.lane(), cut);
        }
        for (const bool one : reaching) selected += CountBits(block.Ballot(one));
      }
      if (block.lane() == 0) candidates.runs[c].selected = selected;
      own += block.lane() == 0 ? selected : 0;
    }
    const std::uint32_t total = block.Sum(own);
    auto at = static_cast<std::uint32_t>(SumBefore(block, control->sums, self, total));
    for (std::uint32_t c = first; c < last; c += kThreads) {
      const std::uint32_t mine = c + block.thread();
      std::uint32_t sum = 0;
      const std::uint32_t selected = mine < last ? candidates.runs[mine].selected : 0;
      const std::uint32_t start = at + block.ExclusiveSum(selected, &sum);
      if (mine < last) candidates.runs[mine].start = start;
      at += sum;
    }
    const std::uint32_t limit = control->limit;
    if (last_block && block.thread() == 0) slot.report->count = at < limit ? at : limit;
    if (total == 0) return;
    block.Sync();
    for (std::uint32_t c = first + block.warp(); c < last; c += Block::kWarps) {
      const DeviceRun run = candidates.runs[c];
      if (run.selected == 0) continue;
      std::uint32_t to = run.start;
      for (std::uint32_t j = 0; j < run.count; j += kLoadsInFlight * kWarp) {
        bool reaching[kLoadsInFlight];
        for (unsigned u = 0; u < kLoadsInFlight; ++u) {
          reaching[u] = Reaches(run, j + u * kWarp + block.lane(), cut);
        }
        for (unsigned u = 0; u < kLoadsInFlight; ++u) {
          const std::uint32_t mask = block.Ballot(reaching[u]);
          const std::uint32_t place = to + LanesBefore(block, mask);
          to += CountBits(mask);
          if (!reaching[u] || place >= limit) continue;
          const std::uint32_t a = run.offset + j + u * kWarp + block.lane();
          const std::uint32_t index = candidates.indices[a];
          slot.indices[place] = index;
          slot.values[place] = candidates.values[a];
          if (slot.residual != nullptr) slot.residual[index] = 0;
        }
      }
    }
  }

  SPARFUSE_DEVICE bool Reaches(const DeviceRun& run, std::uint32_t a, std::uint64_t cut) const {
    if (a >= run.count) return false;
    const std::uint32_t key = KeyOf(candidates.values[run.offset + a]);
    const auto cut_key = static_cast<std::uint32_t>(cut >> 32);
    if (key != cut_key) return key > cut_key;
    return OrderOf(key, candidates.indices[run.offset + a]) >= cut;
  }
};

// --- The k largest by passes over all of x -----------------------------------------------------

// Four phases of `spans` blocks: a histogram of each of three digits of the keys, then the elements
// are sent in index order.
struct SendExact {
  static constexpr const char* kName = "SendExact";
  static constexpr int kThreads = 256;
  static constexpr unsigned kEach = 8;
  struct Shared {
    std::uint32_t bins[kExactBins];
    BinShared bin;
  };

  DeviceSource source;  // nothing pending
  ScanControl* control;
  WarmWords* warm;
  std::uint32_t k;
  std::uint32_t spans;
  std::uint64_t span_size;
  SendTarget slot;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const unsigned phase = block.block() / spans;
    const unsigned span = block.block() % spans;
    const std::uint64_t begin = span * span_size;
    const std::uint64_t end = begin + span_size < source.n ? begin + span_size : source.n;
    if (phase > 0) Await(block, control->exact_done + (phase - 1) * kExactSpans, spans);
    // What the phases before have found.
    std::uint32_t prefix = 0;
    std::uint32_t rank = k;
    for (unsigned p = 0; p < phase; ++p) {
      const RankedBin found = FindRankedBin(block, shared.bin, control->exact_bins + p * kExactBins,
                                            1u << BitsOf(p), rank);
      prefix = prefix << BitsOf(p) | found.bin;
      rank -= found.above;
    }
    if (phase < 3) {
      Histogram(block, shared, phase, begin, end, prefix);
      Announce(block, control->exact_done + phase * kExactSpans + span);
    } else {
      Emit(block, span, begin, end, prefix, rank);
    }
  }

 private:
  // Digits of a key: 11, 10 and 10 bits.
  static SPARFUSE_DEVICE unsigned BitsOf(unsigned phase) { return phase == 0 ? 11 : 10; }

  template <class Block>
  SPARFUSE_DEVICE void Histogram(Block& block, Shared& shared, unsigned phase, std::uint64_t begin,
                                 std::uint64_t end, std::uint32_t prefix) const {
    const unsigned shift = phase == 0 ? 20 : phase == 1 ? 10 : 0;
    const std::uint32_t digits = 1u << BitsOf(phase);
    for (unsigned b = block.thread(); b < digits; b += kThreads) shared.bins[b] = 0;
    block.Sync();
    for (std::uint64_t i = begin; i < end; i += kThreads * kEach) {
      std::uint32_t keys[kEach];
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint64_t at = i + e * kThreads + block.thread();
        keys[e] = at < end ? KeyOf(source.At(at)) : kNoKey;  // whose prefix is none of theirs
      }
      for (unsigned e = 0; e < kEach; ++e) {
        const bool in = keys[e] != kNoKey && keys[e] >> shift >> BitsOf(phase) == prefix;
        const std::uint32_t digit = keys[e] >> shift & (digits - 1);
        // Tensors come here because many elements are equal: a warp of equals adds once.
        const std::uint32_t first = block.Shuffle(in ? digit : kNoKey, 0);
        if (block.Ballot(in && digit == first) == 0xffffffffu) {
          if (block.lane() == 0) block.AtomicAdd(&shared.bins[digit], std::uint32_t{kWarp});
        } else if (in) {
          block.AtomicAdd(&shared.bins[digit], 1u);
        }
      }
    }
    block.Sync();
    for (unsigned b = block.thread(); b < digits; b += kThreads) {
      if (shared.bins[b] == 0) continue;
      block.AtomicAdd(&control->exact_bins[phase * kExactBins + b], shared.bins[b]);
    }
  }

  // All elements above `key` and the first `ties` that equal it.
  template <class Block>
  SPARFUSE_DEVICE void Emit(Block& block, unsigned span, std::uint64_t begin, std::uint64_t end,
                            std::uint32_t key, std::uint32_t ties) const {
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
    for (std::uint64_t i = begin; i < end; i += kThreads * kEach) {
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint64_t at = i + e * kThreads + block.thread();
        const std::uint32_t own = at < end ? KeyOf(source.At(at)) : 0;
        above += static_cast<std::uint32_t>(own > key);
        equal += static_cast<std::uint32_t>(own == key && at < end);
      }
    }
    // Equal elements in the upper half, which sums of no more than n cannot leave.
    const std::uint64_t own = block.Sum(std::uint64_t{equal} << 32 | above);
    std::uint64_t before = SumBefore(block, control->exact_sums, span, own);
    for (std::uint64_t i = begin; i < end; i += kThreads * kEach) {
      const std::uint64_t at = i + block.thread() * kEach;
      float x[kEach];
      std::uint64_t count = 0;
      for (unsigned e = 0; e < kEach; ++e) {
        x[e] = at + e < end ? source.At(at + e) : 0;
        count += Counted(x[e], key, at + e < end);
      }
      std::uint64_t total = 0;
      std::uint64_t place = before + block.ExclusiveSum(count, &total);
      before += total;
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint64_t one = Counted(x[e], key, at + e < end);
        const auto ties_before = static_cast<std::uint32_t>(place >> 32);
        const std::uint32_t to =
            static_cast<std::uint32_t>(place) + (ties_before < ties ? ties_before : ties);
        if (one == 1 || (one > 1 && ties_before < ties)) {
          slot.indices[to] = static_cast<std::uint32_t>(at + e);
          slot.values[to] = x[e];
          if (slot.residual != nullptr) slot.residual[at + e] = 0;
        }
        place += one;
      }
    }
    if (span != spans - 1 || block.thread() != 0) return;
    slot.report->count = k;
    Learn(warm, control->warm != 0, key, control->count, k, true);
  }

  static SPARFUSE_DEVICE std::uint64_t Counted(float x, std::uint32_t key, bool valid) {
    const std::uint32_t own = KeyOf(x);
    if (!valid || own < key) return 0;
    return own > key ? 1 : std::uint64_t{1} << 32;
  }
};

// --- Without a scan ----------------------------------------------------------------------------

// Everything: density 1.
struct SendAll {
  static constexpr const char* kName = "SendAll";
  static constexpr int kThreads = 256;
  using Shared = NoShared;
  DeviceSource source;
  SendTarget slot;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared&) const {
    const std::uint64_t stride = std::uint64_t{block.blocks()} * kThreads;
    for (std::uint64_t i = std::uint64_t{block.block()} * kThreads + block.thread(); i < source.n;
         i += stride) {
      const float x = source.At(i);
      NoteIfNotFinite(block, slot.report, KeyOf(x), i);
      slot.indices[i] = static_cast<std::uint32_t>(i);
      slot.values[i] = x;
      if (slot.residual != nullptr) slot.residual[i] = 0;
    }
    if (block.block() == 0 && block.thread() == 0) {
      slot.report->count = static_cast<std::uint32_t>(source.n);
    }
  }
};

// x of a small tensor in the registers of one block: element e * Threads + t in x[e] of thread t.
template <int Threads>
struct InRegisters {
  static constexpr unsigned kEach = 16;
  static constexpr unsigned kCounts = kEach * Threads / kWarp;
  float x[kEach];
  std::uint32_t n;

  // Does the pending addition; what is not finite goes into the report.
  template <class Block>
  SPARFUSE_DEVICE void Load(Block& block, const DeviceSource& source, SlotReport* report) {
    n = static_cast<std::uint32_t>(source.n);
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      x[e] = i < n ? source.At(i) : 0;
    }
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      if (i >= n) break;
      NoteIfNotFinite(block, report, KeyOf(x[e]), i);
      if (source.pending) source.residual[i] = x[e];
    }
  }

  // f(element number e, its index) for those that are.
  template <class Block, class F>
  SPARFUSE_DEVICE void ForEach(Block& block, const F& f) const {
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      if (i < n) f(KeyOf(x[e]), i);
    }
  }

  // Sends, in index order, the first `limit` that reach the cut. counts: [kCounts], shared.
  template <class Block>
  SPARFUSE_DEVICE void Send(Block& block, std::uint32_t* counts, std::uint64_t cut,
                            std::uint32_t limit, const SendTarget& slot) const {
    constexpr unsigned kWarps = Threads / kWarp;
    static_assert(kCounts <= Threads);
    std::uint32_t masks[kEach];
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      masks[e] = block.Ballot(i < n && OrderOf(KeyOf(x[e]), i) >= cut);
      if (block.lane() == 0) counts[e * kWarps + block.warp()] = CountBits(masks[e]);
    }
    block.Sync();
    std::uint32_t total = 0;
    const bool mine = block.thread() < kCounts;
    const std::uint32_t start = block.ExclusiveSum(mine ? counts[block.thread()] : 0u, &total);
    if (mine) counts[block.thread()] = start;
    block.Sync();
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      const std::uint32_t place = counts[e * kWarps + block.warp()] + LanesBefore(block, masks[e]);
      if ((masks[e] >> block.lane() & 1) == 0 || place >= limit) continue;
      slot.indices[place] = i;
      slot.values[place] = x[e];
      if (slot.residual != nullptr) slot.residual[i] = 0;
    }
    if (block.thread() == 0) slot.report->count = total < limit ? total : limit;
  }
};

template <int Threads>
struct SendLargestOfSmall {
  static constexpr const char* kName = "SendLargestOfSmall";
  static constexpr int kThreads = Threads;
  struct Shared {
    RankShared rank;
    std::uint32_t counts[InRegisters<Threads>::kCounts];
  };
  DeviceSource source;
  std::uint32_t k;
  SendTarget slot;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    InRegisters<Threads> elements;
    elements.Load(block, source, slot.report);
    const std::uint64_t cut = CutOfRank(block, shared.rank, 63, 0, k, [&](const auto& count) {
      elements.ForEach(block, [&](std::uint32_t key, std::uint32_t i) { count(OrderOf(key, i)); });
    });
    elements.Send(block, shared.counts, cut, k, slot);
  }
};

}  // namespace sparfuse::gpu

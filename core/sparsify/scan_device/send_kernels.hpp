// Sends from the candidates of a scan (scan_kernels.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"

namespace sparfuse::gpu {

// Learns from a step, as WarmBound::Learn (largest.hpp), but for tensors of any size: the key of
// the step's k-th magnitude, the number of elements that reached the bound, and whether they were
// too few or too many.
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

// Lets RecollectOnDevice collect the elements that reach `lo`. All threads of a block call it; the
// block must be the last of its launch that reads the control.
SPARFUSE_DEVICE void WantRecollected(auto& block, ScanControl* control, std::uint32_t lo) {
  block.Sync();
  for (unsigned b = block.thread(); b < kScanBins; b += block.kThreads) control->bins[b] = 0;
  if (block.thread() != 0) return;
  control->lo = lo;
  control->count = 0;
  control->recollect = 1;
}

inline constexpr unsigned kLoadsInFlight = 4;  // of a thread that reads candidates

// Calls f(position, key, whether there is a candidate) for block self's share, of `blocks`, in the
// first `count` candidates. The lanes of a warp call f together.
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

// Returns the place in a list of kListRoom for the element of each lane with `in`, or kListRoom.
// *listed counts all such elements, also those without room. The lanes of a warp call it together.
SPARFUSE_DEVICE std::uint32_t PlaceInList(auto& block, bool in, std::uint32_t* listed) {
  const std::uint32_t mask = block.Ballot(in);
  if (mask == 0) return kListRoom;
  std::uint32_t to = 0;
  if (block.lane() == 0) to = block.AtomicAdd(listed, CountBits(mask));
  to = block.Shuffle(to, 0) + LanesBefore(block, mask);
  return in ? to : kListRoom;
}

// The number of blocks of Send that read all candidates.
inline std::size_t LookingBlocks(std::size_t capacity) {
  return std::clamp<std::size_t>(capacity / 4096, 1, kMostCounting);
}

// Blocks [0, counting) count the elements that reach control->key, and decide. Blocks [counting,
// counting + refining) find the cut of the k largest. Each other block sends the candidates of some
// neighbouring chunks.
struct Send {
  static constexpr int kThreads = 512;
  // A multiprocessor runs four of these blocks at a time.
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

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
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

  SPARFUSE_DEVICE void Count(auto& block) const {
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
        Learn(warm, control->warm != 0, key, control->count, k, control->recollect != 0);
      } else {
        control->mode = SendMode::kLargest;
        if (control->estimate_may_miss != 0) {
          // Expected: neither a fallback nor an overflow.
        } else if (known && reaching == 0) {
          ++slot.report->fallbacks;
        } else if (key >= lo && (!Stored() || reaching > slot.capacity)) {
          ++slot.report->overflows;
        }
      }
      control->reaching = reaching;
    }
    Announce(block, &control->decided);
  }

  SPARFUSE_DEVICE void Refine(auto& block, Shared& shared) const {
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
        Learn(warm, control->warm != 0, static_cast<std::uint32_t>(cut >> 32), count, k,
              control->recollect != 0);
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

    // Counts the elements that each run sends; one warp for each run.
    std::uint32_t own = 0;
    for (std::uint32_t c = first + block.warp(); c < last; c += Block::kWarps) {
      const DeviceSegment run = candidates.segments[c];
      std::uint32_t selected = all ? run.count : 0;
      for (std::uint32_t j = 0; j < run.count && !all; j += kLoadsInFlight * kWarp) {
        bool reaching[kLoadsInFlight];
        for (unsigned u = 0; u < kLoadsInFlight; ++u) {
          reaching[u] = Reaches(run, j + u * kWarp + block.lane(), cut);
        }
        for (const bool one : reaching) selected += CountBits(block.Ballot(one));
      }
      if (block.lane() == 0) candidates.segments[c].selected = selected;
      own += block.lane() == 0 ? selected : 0;
    }
    const std::uint32_t total = block.Sum(own);
    auto at = static_cast<std::uint32_t>(SumBefore(block, control->sums, self, total));
    for (std::uint32_t c = first; c < last; c += kThreads) {
      const std::uint32_t mine = c + block.thread();
      std::uint32_t sum = 0;
      const std::uint32_t selected = mine < last ? candidates.segments[mine].selected : 0;
      const std::uint32_t start = at + block.ExclusiveSum(selected, &sum);
      if (mine < last) candidates.segments[mine].start = start;
      at += sum;
    }
    const std::uint32_t limit = control->limit;
    if (last_block && block.thread() == 0) slot.report->count = at < limit ? at : limit;
    if (total == 0) return;
    block.Sync();
    for (std::uint32_t c = first + block.warp(); c < last; c += Block::kWarps) {
      const DeviceSegment run = candidates.segments[c];
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

  SPARFUSE_DEVICE bool Reaches(const DeviceSegment& run, std::uint32_t a, std::uint64_t cut) const {
    if (a >= run.count) return false;
    const std::uint32_t key = KeyOf(candidates.values[run.offset + a]);
    const auto cut_key = static_cast<std::uint32_t>(cut >> 32);
    if (key != cut_key) return key > cut_key;
    return OrderOf(key, candidates.indices[run.offset + a]) >= cut;
  }
};

}  // namespace sparfuse::gpu

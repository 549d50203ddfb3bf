// Computes MSTopK's bracket around the k-th magnitude, on the host and on devices, and holds its
// kernels (mstopk.cpp describes the method), beside the passes of scan_kernels.hpp:
//
//   FindBracket  128 blocks  list the keys in the histogram's bin of the (k + 1)-th magnitude; the
//                            last block finds that key and bisects
//   CountBracket 128 blocks  count the candidates that reach the ends of the bracket
//   SendBracket  one block for each span
//
// Each kernel reads the candidates from L2: some 3 us for 25.6M elements at 1 %. If the bracket
// reaches below the candidates, they are collected once more.
#pragma once

#include <cstdint>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/statistics_kernels.hpp"

namespace sparfuse {

struct Bracket {
  std::uint32_t upper = kInfinityKey;  // all elements that reach it are sent
  std::uint32_t lower = 0;
};

// next: the key of the (k + 1)-th magnitude.
SPARFUSE_HOST_DEVICE Bracket Bisect(double mean, double max, std::uint32_t next,
                                    std::int64_t iterations) {
  Bracket bracket;
  double low = 0;
  double high = 1;
  for (std::int64_t i = 0; i < iterations; ++i) {
    const double r = 0.5 * (low + high);
    const std::uint32_t key = KeyAtLeast(mean + r * (max - mean));
    if (key > next) {
      high = r;
      bracket.upper = key;
    } else {
      low = r;
      bracket.lower = key;
    }
  }
  return bracket;
}

}  // namespace sparfuse

namespace sparfuse::gpu {

// The data that the kernels of one step pass to one another.
struct MsTopKStep {
  double mean;
  double max;
  Bracket bracket;
  std::uint32_t start;  // position, among the elements inside the bracket, of the first sent one

  // Zero before the step (ScanOptions::own).
  struct Counts {
    std::uint32_t listed;
    std::uint32_t sure;    // candidates that reach the upper end
    std::uint32_t inside;  // candidates that reach the lower end but not the upper
    std::uint32_t send;    // 1: the bracket is sent
    std::uint32_t searched[kMostCounting];
    std::uint32_t counted[kMostCounting];
  } counts;
};

// Runs at the end of the pass. Notes the mean and the maximum of |x|.
struct NoteRange {
  MsTopKStep* step;

  SPARFUSE_DEVICE void operator()(auto& block, const Statistics& statistics) const {
    if (block.thread() != 0) return;
    step->mean = statistics.MeanAbs();
    step->max = statistics.MaxAbs();
  }
};

// Finds the bracket. Asks for another Collect if the bracket reaches below the candidates.
struct FindBracket {
  static constexpr int kThreads = 256;
  using Shared = RankShared;

  std::int64_t iterations;
  std::uint32_t k;
  ScanControl* control;
  CandidateArrays candidates;
  std::uint64_t* list;
  MsTopKStep* step;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t count = control->count;
    const std::uint32_t lo = control->lo;
    if (count <= k || count > candidates.capacity) {  // for all threads of all blocks
      if (block.block() == 0 && block.thread() == 0) step->bracket = {0, 0};
      return;
    }
    const RankedBin bin = FindRankedBin(block, shared.bin, control->bins, kScanBins, k + 1);
    ForCandidates(block, candidates, count, block.block(), block.blocks(),
                  [&](std::uint32_t, std::uint32_t key, bool is) {
                    const bool in = is && BinOf(key, lo) == bin.bin;
                    const std::uint32_t to = PlaceInList(block, in, &step->counts.listed);
                    if (to < kListRoom) list[to] = key;
                  });
    Announce(block, step->counts.searched + block.block());
    if (block.block() != block.blocks() - 1) return;
    Await(block, step->counts.searched, block.blocks());

    const std::uint32_t listed = step->counts.listed;
    const auto for_each = [&](const auto& use) {
      if (listed <= kListRoom) {
        for (std::uint32_t i = block.thread(); i < listed; i += kThreads) {
          use(static_cast<std::uint32_t>(list[i]));
        }
      } else {  // many are equal
        for (std::uint32_t a = block.thread(); a < count; a += kThreads) {
          const std::uint32_t key = KeyOf(candidates.values[a]);
          if (BinOf(key, lo) == bin.bin) use(key);
        }
      }
    };
    const std::uint32_t base = lo + (bin.bin << kScanShift);
    const int bits = bin.bin == kScanBins - 1 ? 31 : kScanShift;
    const std::uint32_t next =
        base + KeyOfRank(block, shared, bits, k + 1 - bin.above, [&](const auto& use) {
          for_each([&](std::uint32_t key) { use(key - base); });
        });
    const Bracket bracket = Bisect(step->mean, step->max, next, iterations);
    if (block.thread() == 0) step->bracket = bracket;
    if (bracket.lower < lo) WantRecollected(block, control, bracket.lower);
  }

 private:
  static SPARFUSE_DEVICE std::uint32_t BinOf(std::uint32_t key, std::uint32_t lo) {
    const std::uint32_t bin = (key - lo) >> kScanShift;
    return bin < kScanBins ? bin : kScanBins - 1;
  }
};

// Decides whether the bracket is sent or the k largest. For the k largest control->active stays 1.
struct CountBracket {
  static constexpr int kThreads = 256;

  RandomStream stream;
  std::uint32_t k;
  std::uint32_t most;  // capacity of the second collection
  ScanControl* control;
  CandidateArrays candidates;
  MsTopKStep* step;
  SlotReport* report;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const Bracket bracket = step->bracket;
    const std::uint32_t count = control->count;
    const bool stored = count <= candidates.capacity;
    const bool known = bracket.upper > 0 && stored;
    std::uint32_t sure = 0;
    std::uint32_t inside = 0;
    for (std::uint32_t a = block.block() * kThreads + block.thread(); known && a < count;
         a += block.blocks() * kThreads) {
      const std::uint32_t key = KeyOf(candidates.values[a]);
      sure += static_cast<std::uint32_t>(key >= bracket.upper);
      inside += static_cast<std::uint32_t>(key < bracket.upper && key >= bracket.lower);
    }
    sure = block.Sum(sure);
    inside = block.Sum(inside);
    if (block.thread() == 0 && sure > 0) block.AtomicAdd(&step->counts.sure, sure);
    if (block.thread() == 0 && inside > 0) block.AtomicAdd(&step->counts.inside, inside);
    Announce(block, step->counts.counted + block.block());
    if (block.block() != block.blocks() - 1) return;
    Await(block, step->counts.counted, block.blocks());
    if (block.thread() != 0) return;
    const bool send = known && (control->recollect == 0 || count <= most);
    step->counts.send = send ? 1 : 0;
    step->start = send && step->counts.inside > 0
                      ? static_cast<std::uint32_t>(stream.Below(step->counts.inside, 0))
                      : 0;
    if (send) {
      control->active = 0;
    } else if (stored && count >= k) {
      ++report->fallbacks;  // else the kernel that sends the k largest raises it
    }
  }
};

// Sends all candidates that reach the upper end, and of the candidates inside those at the
// positions [start, start + wanted) modulo `inside`.
struct SendBracket {
  static constexpr int kThreads = 256;

  std::uint32_t k;
  std::uint32_t chunks;
  std::uint32_t chunks_per_span;
  ScanControl* control;
  CandidateArrays candidates;
  const MsTopKStep* step;
  SendTarget slot;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t span = block.block();
    const std::uint32_t first = span * chunks_per_span;
    const std::uint32_t last = first + chunks_per_span < chunks ? first + chunks_per_span : chunks;
    // The upper half counts candidates inside the bracket, the lower half candidates above it.
    std::uint64_t own = 0;
    for (std::uint32_t c = first + block.warp(); c < last; c += block.kWarps) {
      DeviceSegment run = candidates.segments[c];
      run.selected = 0;
      run.start = 0;
      for (std::uint32_t j = 0; j < run.count; j += kWarp) {
        const Part part = PartOf(run, j + block.lane());
        run.selected += CountBits(block.Ballot(part == Part::kAbove));
        run.start += CountBits(block.Ballot(part == Part::kInside));
      }
      if (block.lane() != 0) continue;
      candidates.segments[c] = run;
      own += std::uint64_t{run.start} << 32 | run.selected;
    }
    own = block.Sum(own);
    std::uint64_t before = SumBefore(block, control->sums, span, own);
    for (std::uint32_t c = first; c < last; c += kThreads) {
      const std::uint32_t mine = c + block.thread();
      std::uint64_t counts = 0;
      if (mine < last) {
        counts = std::uint64_t{candidates.segments[mine].start} << 32 |
                 candidates.segments[mine].selected;
      }
      std::uint64_t sum = 0;
      const std::uint64_t at = before + block.ExclusiveSum(counts, &sum);
      before += sum;
      if (mine >= last) continue;
      candidates.segments[mine].selected = static_cast<std::uint32_t>(at);
      candidates.segments[mine].start = static_cast<std::uint32_t>(at >> 32);
    }
    if (block.thread() == 0 && span == block.blocks() - 1) {
      slot.report->count = k;
      slot.report->candidates += control->count;
    }
    block.Sync();
    for (std::uint32_t c = first + block.warp(); c < last; c += block.kWarps) {
      const DeviceSegment run = candidates.segments[c];
      std::uint32_t sure = run.selected;
      std::uint32_t inside = run.start;
      for (std::uint32_t j = 0; j < run.count; j += kWarp) {
        const std::uint32_t a = j + block.lane();
        const Part part = PartOf(run, a);
        const std::uint32_t sure_mask = block.Ballot(part == Part::kAbove);
        const std::uint32_t inside_mask = block.Ballot(part == Part::kInside);
        const std::uint32_t position = inside + LanesBefore(block, inside_mask);
        const std::uint32_t place = sure + LanesBefore(block, sure_mask) + TakenBefore(position);
        const bool taken =
            part == Part::kAbove ||
            (part == Part::kInside && TakenBefore(position + 1) > TakenBefore(position));
        sure += CountBits(sure_mask);
        inside += CountBits(inside_mask);
        if (!taken) continue;
        const std::uint32_t index = candidates.indices[run.offset + a];
        slot.indices[place] = index;
        slot.values[place] = candidates.values[run.offset + a];
        if (slot.residual != nullptr) slot.residual[index] = 0;
      }
    }
  }

 private:
  enum class Part { kBelow, kInside, kAbove };

  // The part in which a candidate of the run lies; kBelow if there is no candidate.
  SPARFUSE_DEVICE Part PartOf(const DeviceSegment& run, std::uint32_t a) const {
    if (a >= run.count) return Part::kBelow;
    const std::uint32_t key = KeyOf(candidates.values[run.offset + a]);
    if (key >= step->bracket.upper) return Part::kAbove;
    return key >= step->bracket.lower ? Part::kInside : Part::kBelow;
  }
  // The number of sent positions inside the bracket that are below `position`.
  SPARFUSE_DEVICE std::uint32_t TakenBefore(std::uint32_t position) const {
    const std::uint32_t wanted = k - step->counts.sure;
    const std::uint32_t start = step->start;
    const std::uint32_t to_end = step->counts.inside - start;
    const std::uint32_t run = wanted < to_end ? wanted : to_end;
    const std::uint32_t wrapped = wanted - run;
    std::uint32_t taken = position < wrapped ? position : wrapped;
    if (position > start) taken += position - start < run ? position - start : run;
    return taken;
  }
};

}  // namespace sparfuse::gpu

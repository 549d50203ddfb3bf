// Finds DGC's sampled threshold and corrects it, in kernels (dgc.cpp).
//
// Expected, not measured, on an H200 for n = 25.6M at 1 %, warm: Prepare 2 us, Collect 24 us,
// DgcDecide 12 us, Send 7 us, and 1 to 1.5 us for each of three launches that are not wanted.
// DgcDecide reads the candidates' indices and values from L2; then a chain of waits follows, and
// one block finds digits among 3,600 keys. For a sample at random positions DgcFromRandom fetches
// 256,000 sectors, 16 MB, in 8 us. DgcFromAll, if it is wanted, takes some 60 us: it reads the
// sample three times and x once. It takes 5 ms more for each correction that LikelyThresholds does
// not foresee, because one block counts then.
//
// The kernels do not read a strided sample: its relevant elements are candidates of the one pass
// over x, known by their position. The bound of the pass meets two conditions. More than
// upper_bound * K elements reach it, so that too many also reach any threshold below it. And it
// lies a factor of 1 + 6 / sqrt(T) below the expected threshold, the T-th largest of the sample,
// whose rank deviates by sqrt(T). (A sample at random positions is read before the pass, with the
// same bound.) If the bound fails, DgcFromAll finds the threshold in x itself.
#pragma once

#include <cstdint>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"
#include "core/sparsify/scan_device/small_tensor_kernels.hpp"

namespace sparfuse::gpu {

// The parameters of DGC for one tensor.
struct DgcRule {
  std::uint32_t k;
  std::uint32_t rank;     // of the threshold in the sample
  std::uint32_t samples;  // elements of the sample
  std::uint32_t stride;
  std::uint32_t start;  // of a strided sample
  bool strided;         // else the sample has random positions, drawn from `stream`
  bool corrected;       // there is a loop of corrections
  bool resample;
  bool exact_trim;
  std::uint32_t most;  // if at most so many elements reach the threshold, the first k are sent
  std::int64_t max_iterations;
  double upper_bound;
  double lower_bound;
  RandomStream stream;

  // The index in the tensor of element s of the sample.
  SPARFUSE_DEVICE std::uint64_t Position(std::uint64_t n, std::uint64_t s) const {
    return strided ? start + s * stride : stream.Below(n, s);
  }
  // Whether a strided sample contains the element.
  SPARFUSE_DEVICE bool Sampled(std::uint32_t index) const {
    return index >= start && (index - start) % stride == 0;
  }
};

inline constexpr unsigned kDgcThresholds = 12;  // ten corrections and two

// Zero when a selection starts.
struct DgcWords {
  std::uint32_t slow;  // 1: the candidates do not determine the selection
  std::uint32_t listed;
  std::uint32_t first_key;  // of the sample's threshold
  std::uint32_t thresholds_ready;
  std::uint32_t keys[kDgcThresholds];    // of the likely thresholds
  std::uint32_t counts[kDgcThresholds];  // elements that reach them
  std::uint32_t gathered[kMostCounting];
  std::uint32_t counted[kMostCounting];
  std::uint32_t slow_counts[kDgcThresholds];
  std::uint32_t slow_bins[kKeyDigits * kDigits];
  std::uint32_t slow_done[(kKeyDigits + 1) * kExactSpans];
};

// Lists the keys of thresholds that corrections may lead to, so that one pass counts them together.
SPARFUSE_DEVICE void LikelyThresholds(const DgcRule& rule, float first, std::uint32_t* keys) {
  float low = first;
  float high = first;
  for (unsigned i = 0; i < kDgcThresholds; ++i) {
    const bool up = !rule.resample && i % 2 == 1;
    float& threshold = up ? high : low;
    if (i > 0) threshold *= static_cast<float>(up ? rule.upper_bound : rule.lower_bound);
    keys[i] = rule.corrected || i == 0 ? KeyOf(threshold) : kNoKey;
  }
}

struct DgcDecision {
  bool largest;  // the k largest are sent, else the first k that reach `key`
  std::uint32_t key;
  std::uint32_t count;  // number of elements that reach it
};

// The loop of corrections. count_reaching(key): the number of elements that reach the key, the same
// in all threads.
SPARFUSE_DEVICE DgcDecision Correct(const DgcRule& rule, std::uint32_t first_key,
                                    const auto& count_reaching) {
  float threshold = MagnitudeOf(first_key);
  std::uint32_t count = count_reaching(first_key);
  const double upper = rule.upper_bound * static_cast<double>(rule.k);
  const double lower = rule.lower_bound * static_cast<double>(rule.k);
  for (std::int64_t i = 0; rule.corrected && i < rule.max_iterations; ++i) {
    const auto reached = static_cast<double>(count);
    double factor = 0;
    if (reached > upper && count > rule.k) {
      if (rule.resample) return {true, 0, count};
      factor = rule.upper_bound;
    } else if (reached < lower) {
      factor = rule.lower_bound;
    } else {
      break;
    }
    const float next = threshold * static_cast<float>(factor);
    if (next == threshold || KeyOf(next) >= kInfinityKey) break;
    threshold = next;
    count = count_reaching(KeyOf(threshold));
  }
  return {false, KeyOf(threshold), count};
}

// Applies the rule's limits to a decision with an exact count, and raises the counters. One thread.
SPARFUSE_DEVICE DgcDecision Settled(const DgcRule& rule, DgcDecision decision, SlotReport* report) {
  if (decision.largest) return decision;
  if (decision.count == 0) ++report->fallbacks;
  if (decision.count > rule.most) ++report->overflows;
  const bool trimmed = rule.exact_trim && decision.count > rule.k;
  decision.largest = decision.count == 0 || decision.count > rule.most || trimmed;
  return decision;
}

// Makes RecollectOnDevice collect the elements that reach `key`, and SendReaching send them. All
// threads of a block call it.
SPARFUSE_DEVICE void SendFromRecollected(auto& block, ScanControl* control, const DgcRule& rule,
                                         std::uint32_t key) {
  WantRecollected(block, control, key);
  if (block.thread() != 0) return;
  control->key = key;
  control->least = 1;
  control->most = rule.exact_trim && rule.k < rule.most ? rule.k : rule.most;
  control->first = rule.k;
}

// Before the pass, lists the keys of a sample at random positions that reach the pass's bound. The
// candidates do not determine this sample, because a position may be drawn twice.
struct DgcFromRandom {
  static constexpr int kThreads = 256;
  static constexpr unsigned kEach = 8;
  DgcRule rule;
  DeviceInput source;
  const ScanControl* control;
  DgcWords* words;
  std::uint64_t* list;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    constexpr std::uint32_t kAtOnce = kEach * kThreads;
    const std::uint32_t lo = control->lo;
    for (std::uint64_t first = std::uint64_t{block.block()} * kAtOnce; first < rule.samples;
         first += std::uint64_t{block.blocks()} * kAtOnce) {
      const std::uint64_t mine = first + block.thread();
      float x[kEach];
      source.Load<kEach>([&](unsigned e) { return rule.Position(source.n, mine + e * kThreads); },
                         x);
      for (unsigned e = 0; e < kEach; ++e) {
        const bool in = mine + e * kThreads < rule.samples && KeyOf(x[e]) >= lo;
        const std::uint32_t to = PlaceInList(block, in, &words->listed);
        if (to < kListRoom) list[to] = KeyOf(x[e]);
      }
    }
  }
};

// Decides from the candidates. Blocks [0, blocks() / 2) list the keys of the sample's elements
// among them, unless DgcFromRandom has listed the sample; the last of these blocks finds the
// threshold. The other blocks count the elements that reach the likely thresholds, and the last one
// decides.
struct DgcDecide {
  static constexpr int kThreads = 512;
  using Shared = RankShared;
  DgcRule rule;
  ScanControl* control;
  DgcWords* words;
  CandidateArrays candidates;
  std::uint64_t* list;
  SlotReport* report;
  WarmWords* warm;
  std::uint32_t wanted;  // the number of candidates that the bound aimed at

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t half = block.blocks() / 2;
    if (block.block() < half) {
      Gather(block, shared, half);
    } else {
      Count(block, shared, block.block() - half, half);
    }
  }

 private:
  SPARFUSE_DEVICE bool Stored() const { return control->count <= candidates.capacity; }

  SPARFUSE_DEVICE void Gather(auto& block, Shared& shared, std::uint32_t half) const {
    const std::uint32_t count = Stored() && rule.strided ? control->count : 0;
    ForCandidates(block, candidates, count, block.block(), half,
                  [&](std::uint32_t a, std::uint32_t key, bool is) {
                    const bool in = is && rule.Sampled(candidates.indices[a]);
                    const std::uint32_t to = PlaceInList(block, in, &words->listed);
                    if (to < kListRoom) list[to] = key;
                  });
    Announce(block, &words->gathered[block.block()]);
    if (block.block() != half - 1) return;

    Await(block, words->gathered, half);
    const std::uint32_t listed = words->listed;
    const bool known = Stored() && listed >= rule.rank && listed <= kListRoom;
    std::uint32_t key = 0;
    if (known) {
      key = KeyOfRank(block, shared, 31, rule.rank, [&](const auto& take) {
        for (std::uint32_t first = 0; first < listed; first += kLoadsInFlight * kThreads) {
          std::uint64_t own[kLoadsInFlight];
          const std::uint32_t mine = first + block.thread();
          for (unsigned u = 0; u < kLoadsInFlight; ++u) {
            own[u] = mine + u * kThreads < listed ? list[mine + u * kThreads] : 0;
          }
          for (unsigned u = 0; u < kLoadsInFlight; ++u) {
            if (mine + u * kThreads < listed) take(own[u]);
          }
        }
      });
    }
    if (block.thread() == 0) {
      words->slow = known ? 0 : 1;
      if (known) {
        words->first_key = key;
        LikelyThresholds(rule, MagnitudeOf(key), words->keys);
      }
    }
    Announce(block, &words->thresholds_ready);
  }

  SPARFUSE_DEVICE void Count(auto& block, Shared& shared, std::uint32_t self,
                             std::uint32_t half) const {
    Await(block, &words->thresholds_ready, 1);
    const std::uint32_t lo = control->lo;
    const std::uint32_t count = control->count;
    const bool slow = words->slow != 0;
    if (!slow) {
      for (unsigned t = 0; t < kDgcThresholds; ++t) {
        const std::uint32_t key = words->keys[t];
        if (key < lo || key == kNoKey) continue;
        const std::uint32_t reaching = CountCandidates(block, key, self, half);
        if (block.thread() == 0 && reaching > 0) block.AtomicAdd(&words->counts[t], reaching);
      }
    }
    Announce(block, &words->counted[self]);
    if (self != half - 1) return;

    Await(block, words->counted, half);
    bool sure = !slow;
    DgcDecision decision = {};
    if (sure) {
      // If too many elements reach lo, too many also reach any key below it.
      const bool crowded = static_cast<double>(count) > rule.upper_bound * rule.k && count > rule.k;
      decision = Correct(rule, words->first_key, [&](std::uint32_t key) {
        if (key < lo) {
          sure = sure && crowded;
          return count;
        }
        for (unsigned t = 0; t < kDgcThresholds; ++t) {
          if (words->keys[t] == key) return words->counts[t];
        }
        return CountCandidates(block, key, 0, 1);
      });
    }
    LearnBound(block, shared, lo, count, !sure);
    if (sure) Decide(block, decision, lo);
    if (block.thread() == 0) words->slow = sure ? 0 : 1;
  }

  SPARFUSE_DEVICE void Decide(auto& block, const DgcDecision& decision, std::uint32_t lo) const {
    if (!decision.largest && decision.key < lo) {
      return SendFromRecollected(block, control, rule, decision.key);
    }
    if (block.thread() != 0) return;
    const DgcDecision settled = Settled(rule, decision, report);
    control->decided = 1;
    control->mode = settled.largest ? SendMode::kLargest : SendMode::kReaching;
    control->cut = CutOf(settled.key);
    control->limit = settled.count < rule.k ? settled.count : rule.k;
  }

  // Called by all threads of a block. Returns the count of one block's share; the shares of
  // `blocks` blocks add up to the count.
  SPARFUSE_DEVICE std::uint32_t CountCandidates(auto& block, std::uint32_t key, std::uint32_t self,
                                                std::uint32_t blocks) const {
    std::uint32_t reaching = 0;
    ForCandidates(block, candidates, control->count, self, blocks,
                  [&](std::uint32_t, std::uint32_t own, bool is) {
                    reaching += static_cast<std::uint32_t>(is && own >= key);
                  });
    return block.Sum(reaching);
  }

  SPARFUSE_DEVICE void LearnBound(auto& block, Shared& shared, std::uint32_t lo,
                                  std::uint32_t count, bool failed) const {
    if (warm == nullptr) return;
    const RankedBin bin = FindRankedBin(block, shared.bin, control->bins, kScanBins, wanted);
    if (block.thread() != 0) return;
    const std::uint32_t key = bin.inside > 0 ? lo + (bin.bin << kScanShift) : KeyOf(warm->last);
    Learn(warm, control->warm != 0, key, count, wanted, failed);
  }
};

// Decides from all of x if the candidates do not determine the selection. It has four phases of
// `spans` blocks: three make histograms of the digits of the sample's keys, the fourth counts. One
// more block decides.
struct DgcFromAll {
  static constexpr int kThreads = 512;
  static constexpr unsigned kEach = 8;
  struct Shared {
    std::uint32_t bins[kDigits];
    BinShared bin;
    std::uint32_t keys[kDgcThresholds];
  };
  DgcRule rule;
  const float* x;
  std::uint64_t n;
  std::uint32_t spans;
  ScanControl* control;
  DgcWords* words;
  SlotReport* report;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const unsigned phase = block.block() / spans;
    const unsigned span = block.block() % spans;
    if (phase > 0) Await(block, words->slow_done + (phase - 1) * kExactSpans, spans);
    const KeyPrefix found = FindPrefix(block, shared.bin, words->slow_bins,
                                       phase < kKeyDigits ? phase : kKeyDigits, rule.rank);
    if (phase < kKeyDigits) {
      const std::uint64_t each = (rule.samples + spans - 1) / spans;
      const std::uint64_t end = (span + 1) * each;
      AddDigits(block, shared.bins, words->slow_bins, phase, found.prefix, span * each,
                end < rule.samples ? end : rule.samples,
                [&](std::uint64_t s) { return x[rule.Position(n, s)]; });
    } else {
      if (block.thread() == 0) LikelyThresholds(rule, MagnitudeOf(found.prefix), shared.keys);
      block.Sync();
      if (phase > kKeyDigits) return Decide(block, shared, found.prefix);
      CountReaching(block, shared, span);
    }
    Announce(block, words->slow_done + phase * kExactSpans + span);
  }

 private:
  SPARFUSE_DEVICE void CountReaching(auto& block, const Shared& shared, unsigned span) const {
    const std::uint64_t each = (n + spans - 1) / spans;
    const std::uint64_t begin = span * each;
    const std::uint64_t end = begin + each < n ? begin + each : n;
    std::uint32_t keys[kDgcThresholds];
    std::uint32_t reaching[kDgcThresholds] = {};
    for (unsigned t = 0; t < kDgcThresholds; ++t) keys[t] = shared.keys[t];
    ForNextKeys(block, begin, end, [&](std::uint32_t next) {
      for (unsigned t = 0; t < kDgcThresholds; ++t) {
        reaching[t] += static_cast<std::uint32_t>(next > keys[t]);
      }
    });
    for (unsigned t = 0; t < kDgcThresholds; ++t) {
      const std::uint32_t sum = block.Sum(reaching[t]);
      if (block.thread() == 0 && sum > 0) block.AtomicAdd(&words->slow_counts[t], sum);
    }
  }

  SPARFUSE_DEVICE void Decide(auto& block, const Shared& shared, std::uint32_t first_key) const {
    const DgcDecision decision = Correct(rule, first_key, [&](std::uint32_t key) {
      for (unsigned t = 0; t < kDgcThresholds; ++t) {
        if (shared.keys[t] == key) return words->slow_counts[t];
      }
      std::uint32_t sum = 0;
      ForNextKeys(block, 0, n,
                  [&](std::uint32_t next) { sum += static_cast<std::uint32_t>(next > key); });
      return block.Sum(sum);
    });
    // Either collects and sends the elements that reach the threshold, or lets Send send the k
    // largest from the candidates.
    const bool trimmed = rule.exact_trim && decision.count > rule.k;
    if (!decision.largest && !trimmed && decision.count > 0 && decision.count <= rule.most) {
      return SendFromRecollected(block, control, rule, decision.key);
    }
    if (block.thread() != 0) return;
    Settled(rule, decision, report);
    control->decided = 1;
    control->mode = SendMode::kLargest;
  }

  // Calls f(key + 1) for each element of the thread's share of [begin, end), and f(0), which
  // exceeds no key, for the rest of its last round.
  SPARFUSE_DEVICE void ForNextKeys(auto& block, std::uint64_t begin, std::uint64_t end,
                                   const auto& f) const {
    for (std::uint64_t i = begin + block.thread(); i < end; i += kEach * kThreads) {
      float own[kEach];
      for (unsigned e = 0; e < kEach; ++e) {
        own[e] = x[i + e * kThreads < end ? i + e * kThreads : i];
      }
      for (unsigned e = 0; e < kEach; ++e) f(i + e * kThreads < end ? KeyOf(own[e]) + 1 : 0);
    }
  }
};

// Selects from a small tensor in one block.
template <int Threads>
struct DgcOfSmall {
  static constexpr int kThreads = Threads;
  struct Shared {
    RankShared rank;
    std::uint32_t counts[InRegisters<Threads>::kCounts];
  };
  DgcRule rule;
  DeviceInput source;
  SendTarget slot;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    InRegisters<Threads> elements;
    elements.Load(block, source, slot.report);
    block.Sync();  // the residual that Load wrote may be read by other threads
    const std::uint32_t first_key =
        rule.strided ? KeyOfRank(block, shared.rank, 31, rule.rank,
                                 [&](const auto& take) {
                                   elements.ForEach(block, [&](std::uint32_t key, std::uint32_t i) {
                                     if (rule.Sampled(i)) take(key);
                                   });
                                 })
                     : KeyOfRank(block, shared.rank, 31, rule.rank, [&](const auto& take) {
                         for (std::uint32_t s = block.thread(); s < rule.samples; s += Threads) {
                           take(KeyOf(source.x()[rule.Position(source.n, s)]));
                         }
                       });
    const DgcDecision corrected = Correct(rule, first_key, [&](std::uint32_t wanted) {
      std::uint32_t reaching = 0;
      elements.ForEach(block, [&](std::uint32_t key, std::uint32_t) {
        reaching += static_cast<std::uint32_t>(key >= wanted);
      });
      return block.Sum(reaching);
    });
    SlotReport counters = {};
    const DgcDecision decision = Settled(rule, corrected, &counters);
    if (block.thread() == 0) {
      slot.report->overflows += counters.overflows;
      slot.report->fallbacks += counters.fallbacks;
    }
    std::uint64_t cut = CutOf(decision.key);
    if (decision.largest) {
      cut = CutOfRank(block, shared.rank, 63, 0, rule.k, [&](const auto& count) {
        elements.ForEach(block,
                         [&](std::uint32_t key, std::uint32_t i) { count(OrderOf(key, i)); });
      });
    }
    elements.Send(block, shared.counts, cut, rule.k, slot);
  }
};

}  // namespace sparfuse::gpu

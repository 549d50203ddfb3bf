// Joins the kernels of device_scan.hpp and states their cost. Defines the first kernel, which
// zeroes a scan's control and finds its bound, and the last, which sends the k largest by passes
// over all of x.
//
// Expected, not measured, on an H200 (4.8 TB/s, about 4.3 for a read; 132 multiprocessors), for
// n = 25.6M at 1 % without feedback:
//   Prepare    1 block           a sample of 16384 elements, two digits in shared memory     7 us
//              warm: zeroes 55 kB in L2                                                      2 us
//   Collect    1042 blocks       102 MB once; 1.4 k candidates, 3 MB                        24 us
//   Send       128 + 521 blocks  values of candidates from L2 three times, 2 MB to the slot  7 us
//   SendExact  1024 blocks       nothing: it is not wanted as a rule                       1.5 us
// Together they take 1.4 to 1.6 times as long as the read; for n = 110M, where Collect takes 102
// us, 1.2 times. With feedback Collect moves 307 MB, and Send zeroes k elements, each with 32 bytes
// read and written. If the candidates do not contain the k largest, SendExact reads x five times.
//
// In Collect a thread has four 16-byte loads in flight (eight with feedback). With 48 registers a
// multiprocessor has 40 warps, which keep 80 kB in flight: three times the product of its latency
// and bandwidth. An element costs a handful of instructions: addition, comparison, a bit of a mask.
// Ranks within a warp come from one scan of four counts packed into a word; 4096 elements take two
// barriers. Candidates go to an arena, where one atomic addition reserves room for a chunk. The
// order of chunks in the arena depends on timing; the order of reads through the chunks' segments
// does not.
//
// The passes over candidates are phases of one launch, and so are the exact passes over x. A block
// of a later phase waits for the earlier ones, whose blocks have lower numbers and so have started.
// If blocks write side by side, each sums the counts that the blocks before it have announced
// (SumBefore). With some thousand blocks that is cheaper than a chain of look-backs.
//
// RAFT's select_k and CUB's device-wide top-k read all of x for the first digit and again for the
// next, and filter into buffers meanwhile (J. Zhang, A. Naruse, X. Li, Y. Wang, "Parallel top-k
// algorithms on GPU: a comprehensive study and new methods", SC 2023). Here the sample replaces the
// first digit, which leaves one pass. The output is in index order, ties included; their output has
// no fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan/sample.hpp"
#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr std::size_t kMostSampled = 16384;

// Zeroes a control and finds control->lo: from the step before, from a sample, or 0.
struct Prepare {
  static constexpr int kThreads = 512;
  using Shared = RankShared;

  ScanControl* control;
  const std::uint32_t* only_if;
  DeviceInput source;
  RandomStream stream;
  std::uint32_t lines;  // of the sample
  std::uint32_t rank;   // of the bound in the sample; 0: the bound is options.lo
  ScanOptions options;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const unsigned thread = block.thread();
    const bool wanted = only_if == nullptr || *only_if != 0;
    Zero(block, options.own, options.own_size);
    static_assert(sizeof(ScanControl) % sizeof(std::uint64_t) == 0);
    if (wanted) {
      Zero(block, reinterpret_cast<std::uint64_t*>(control),
           sizeof(ScanControl) / sizeof(std::uint64_t));
    }
    block.Sync();
    const std::uint32_t warm_key = wanted && options.warm != nullptr ? options.warm->key : 0;
    const std::uint32_t given = wanted && options.bound != nullptr ? *options.bound : options.lo;
    std::uint32_t from = warm_key > 0 ? warm_key : given;
    if (wanted && warm_key == 0 && rank > 0) from = Sampled(block, shared);
    if (thread != 0) return;
    control->active = wanted ? 1 : 0;
    if (!wanted) {
      control->exact = 0;
      control->recollect = 0;
      return;
    }
    control->lo = from;
    control->warm = warm_key > 0 ? 1 : 0;
    control->key = options.bound != nullptr ? given : options.key;
    control->least = options.least;
    control->most = options.most;
    control->estimate_may_miss = options.estimate_may_miss;
  }

 private:
  static SPARFUSE_DEVICE void Zero(auto& block, auto* words, std::size_t count) {
    for (std::size_t i = block.thread(); i < count; i += kThreads) words[i] = 0;
  }

  // The bound from a stratified random sample of 64-byte lines.
  SPARFUSE_DEVICE std::uint32_t Sampled(auto& block, Shared& shared) const {
    constexpr unsigned kEach = kMostSampled / kThreads;
    constexpr unsigned kTogether = 8;  // with feedback; else all
    static_assert(kMostSampled / kLine <= kDigits);
    FindSampledLines(block, stream, source.n, lines, shared.bins);
    const unsigned sampled = lines * static_cast<unsigned>(kLine);
    float x[kEach];
    for (unsigned first = 0; first < kEach; first += kTogether) {
      source.Load<kTogether>(
          [&](unsigned e) {
            const unsigned s = (first + e) * kThreads + block.thread();
            return SampledElement(shared.bins, s < sampled ? s : sampled - 1);
          },
          x + first);
    }
    block.Sync();  // the histogram reuses the memory of the lines

    constexpr int kCoarse = 9;  // of a key: 2^-14 of the magnitude
    return static_cast<std::uint32_t>(
        CutOfRank(block, shared, 31, kCoarse, rank, [&](const auto& count) {
          for (unsigned e = 0; e < kEach; ++e) {
            if (e * kThreads + block.thread() < sampled) count(KeyOf(x[e]));
          }
        }));
  }
};

// Sends the k largest in four phases of `spans` blocks each. Three phases make the histograms of
// the keys' three digits; the fourth sends the elements in index order.
struct SendExact {
  static constexpr int kThreads = 512;
  static constexpr unsigned kEach = 8;
  static_assert(kExactBins == kDigits);
  struct Shared {
    std::uint32_t bins[kDigits];
    BinShared bin;
  };

  const float* x;
  std::uint64_t n;
  ScanControl* control;
  WarmWords* warm;
  std::uint32_t k;
  std::uint32_t spans;
  std::uint64_t span_size;
  SendTarget slot;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const unsigned phase = block.block() / spans;
    const unsigned span = block.block() % spans;
    const std::uint64_t begin = span * span_size;
    const std::uint64_t end = begin + span_size < n ? begin + span_size : n;
    if (phase > 0) Await(block, control->exact_done + (phase - 1) * kExactSpans, spans);
    const KeyPrefix found = FindPrefix(block, shared.bin, control->exact_bins, phase, k);
    if (phase < kKeyDigits) {
      AddDigits(block, shared.bins, control->exact_bins, phase, found.prefix, begin, end,
                [&](std::uint64_t i) { return x[i]; });
      Announce(block, control->exact_done + phase * kExactSpans + span);
    } else {
      Emit(block, span, begin, end, found.prefix, found.rank);
    }
  }

 private:
  // Sends all elements above `key` and the first `ties` that equal it.
  SPARFUSE_DEVICE void Emit(auto& block, unsigned span, std::uint64_t begin, std::uint64_t end,
                            std::uint32_t key, std::uint32_t ties) const {
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
    for (std::uint64_t i = begin; i < end; i += kThreads * kEach) {
      std::uint32_t keys[kEach];
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint64_t at = i + e * kThreads + block.thread();
        keys[e] = at < end ? KeyOf(x[at]) : kNoKey;
      }
      for (const std::uint32_t own : keys) {
        above += static_cast<std::uint32_t>(own > key && own != kNoKey);
        equal += static_cast<std::uint32_t>(own == key);
      }
    }
    // The upper half counts equal elements. Neither half overflows, since counts are at most n.
    const std::uint64_t sum = block.Sum(std::uint64_t{equal} << 32 | above);
    std::uint64_t before = SumBefore(block, control->exact_sums, span, sum);
    for (std::uint64_t i = begin; i < end; i += kThreads * kEach) {
      const std::uint64_t at = i + block.thread() * kEach;
      float own[kEach];
      for (unsigned e = 0; e < kEach; ++e) own[e] = at + e < end ? x[at + e] : 0;
      std::uint64_t count = 0;
      for (unsigned e = 0; e < kEach; ++e) count += Counted(own[e], key, at + e < end);
      std::uint64_t total = 0;
      std::uint64_t place = before + block.ExclusiveSum(count, &total);
      before += total;
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint64_t one = Counted(own[e], key, at + e < end);
        const auto ties_before = static_cast<std::uint32_t>(place >> 32);
        const std::uint32_t to =
            static_cast<std::uint32_t>(place) + (ties_before < ties ? ties_before : ties);
        if (one == 1 || (one > 1 && ties_before < ties)) {
          slot.indices[to] = static_cast<std::uint32_t>(at + e);
          slot.values[to] = own[e];
          if (slot.residual != nullptr) slot.residual[at + e] = 0;
        }
        place += one;
      }
    }
    if (span != spans - 1 || block.thread() != 0) return;
    slot.report->count = k;
    Learn(warm, control->warm != 0, key, control->count, k, true);
  }

  static SPARFUSE_DEVICE std::uint64_t Counted(float value, std::uint32_t key, bool valid) {
    const std::uint32_t own = KeyOf(value);
    if (!valid || own < key) return 0;
    return own > key ? 1 : std::uint64_t{1} << 32;
  }
};

}  // namespace sparfuse::gpu

// The k largest by passes over all of x: what a scan does where its candidates do not hold them
// (scan_kernels.hpp).
#pragma once

#include <cstdint>

#include "core/sparsify/device_scan.hpp"
#include "core/sparsify/device_source.hpp"
#include "core/sparsify/rank_kernels.hpp"
#include "core/sparsify/send_kernels.hpp"

namespace sparfuse::gpu {

// Four phases of `spans` blocks: a histogram of each of three digits of the keys, then the elements
// are sent in index order.
struct SendExact {
  static constexpr const char* kName = "SendExact";
  static constexpr int kThreads = 512;
  static constexpr unsigned kEach = 8;
  struct Shared {
    std::uint32_t bins[kExactBins];
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

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const unsigned phase = block.block() / spans;
    const unsigned span = block.block() % spans;
    const std::uint64_t begin = span * span_size;
    const std::uint64_t end = begin + span_size < n ? begin + span_size : n;
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
        keys[e] = at < end ? KeyOf(x[at]) : kNoKey;  // whose prefix is none of theirs
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
    // Equal elements in the upper half, which sums of no more than n cannot leave.
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

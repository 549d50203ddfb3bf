// Sends the k largest by passes over all of x: what a scan does where its candidates do not hold
// them (scan_kernels.hpp).
#pragma once

#include <cstdint>

#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/scan_device/digit_kernels.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"

namespace sparfuse::gpu {

// Four phases of `spans` blocks: a histogram of each of three digits of the keys, then the elements
// are sent in index order.
struct SendExact {
  static constexpr const char* kName = "SendExact";
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

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
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

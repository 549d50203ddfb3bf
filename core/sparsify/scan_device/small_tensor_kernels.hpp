// Selects without a scan: all elements, or from a tensor that fits into the registers of one block.
#pragma once

#include <cstdint>

#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"

namespace sparfuse::gpu {

// Sends all elements: density 1.
struct SendAll {
  static constexpr int kThreads = 256;
  DeviceInput source;
  SendTarget slot;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
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

// x of a small tensor in the registers of one block. x[e] of thread t is element e * Threads + t.
template <int Threads>
struct InRegisters {
  static constexpr unsigned kEach = 16;
  static constexpr unsigned kCounts = kEach * Threads / kWarp;
  float x[kEach];
  std::uint32_t n;

  // Loads x, does the pending addition, and reports elements that are not finite.
  SPARFUSE_DEVICE void Load(auto& block, const DeviceInput& source, SlotReport* report) {
    n = static_cast<std::uint32_t>(source.n);
    const float* const from = source.summand();
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      x[e] = i < n ? from[i] : 0;
    }
    if (source.pending) {
      float old[kEach];
      for (unsigned e = 0; e < kEach; ++e) {
        const std::uint32_t i = e * Threads + block.thread();
        old[e] = i < n ? source.residual[i] : 0;
      }
      for (unsigned e = 0; e < kEach; ++e) x[e] += old[e];
    }
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      if (i >= n) break;
      NoteIfNotFinite(block, report, KeyOf(x[e]), i);
      if (source.pending) source.residual[i] = x[e];
    }
  }

  // Calls f(key, index) for each of the thread's elements.
  SPARFUSE_DEVICE void ForEach(auto& block, const auto& f) const {
    for (unsigned e = 0; e < kEach; ++e) {
      const std::uint32_t i = e * Threads + block.thread();
      if (i < n) f(KeyOf(x[e]), i);
    }
  }

  // Sends, in index order, the first `limit` elements that reach the cut. counts: [kCounts],
  // shared.
  SPARFUSE_DEVICE void Send(auto& block, std::uint32_t* counts, std::uint64_t cut,
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
  static constexpr int kThreads = Threads;
  struct Shared {
    RankShared rank;
    std::uint32_t counts[InRegisters<Threads>::kCounts];
  };
  DeviceInput source;
  std::uint32_t k;
  SendTarget slot;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    InRegisters<Threads> elements;
    elements.Load(block, source, slot.report);
    const std::uint64_t cut = CutOfRank(block, shared.rank, 63, 0, k, [&](const auto& count) {
      elements.ForEach(block, [&](std::uint32_t key, std::uint32_t i) { count(OrderOf(key, i)); });
    });
    elements.Send(block, shared.counts, cut, k, slot);
  }
};

}  // namespace sparfuse::gpu

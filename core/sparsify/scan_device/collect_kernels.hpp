// Passes over x for a scan (scan_kernels.hpp): collects candidates and measures x meanwhile.
#pragma once

#include <cstdint>

#include "core/device/quads.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/device_source.hpp"

namespace sparfuse {
namespace gpu {

struct CandidateArrays {
  std::uint32_t* indices;
  float* values;
  std::uint32_t capacity;
  DeviceSegment* segments;
};

template <class Measure>
struct Collect {
  static constexpr int kThreads = 256;
  static constexpr unsigned kVectors = kScanChunk / kThreads / 4;
  static constexpr unsigned kEach = 4 * kVectors;
  static_assert(kVectors == 4);  // a word holds the counts of four vectors
  struct Shared {
    std::uint32_t bins[kScanBins];
    std::uint32_t counts[2][kThreads / kWarp];  // chunks alternate
    std::uint32_t offset[2];
  };

  DeviceInput source;
  std::uint32_t shift;
  std::uint32_t chunks;
  std::uint32_t chunks_per_span;
  ScanControl* control;
  CandidateArrays candidates;
  SlotReport* report;
  Measure measure;

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    const std::uint32_t lo = control->lo < kInfinityKey ? control->lo : kInfinityKey;
    for (unsigned b = block.thread(); b < kScanBins; b += kThreads) shared.bins[b] = 0;
    block.Sync();
    typename Measure::Part part = measure.Begin();
    const std::uint32_t first = block.block() * chunks_per_span;
    std::uint32_t last = first + chunks_per_span;
    if (last > chunks) last = chunks;
    for (std::uint32_t chunk = first; chunk < last; ++chunk) {
      float x[kEach];
      // The position of the thread's first vector; the next ones follow at a distance of 32
      // vectors. In the first chunk it may lie before x, hence the sign.
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
  // Loads the thread's elements of a chunk. If the addition is pending, adds and writes the
  // residual. Returns a mask of the elements that lie in x.
  SPARFUSE_DEVICE std::uint32_t Load(auto& block, std::uint32_t chunk, std::int64_t at,
                                     float* x) const {
    constexpr std::int64_t kStride = 4 * kWarp;
    const auto n = static_cast<std::int64_t>(source.n);
    const float* const from = source.summand();
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
    } else {  // there is a residual with another alignment
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
        StoreQuad(source.residual + at + kStride * v, old[v]);
        Put(old[v], x + 4 * v);
      }
    }
    return (1u << kEach) - 1;
  }

  static SPARFUSE_DEVICE void Put(const Float4& from, float* to) {
    for (unsigned c = 0; c < 4; ++c) to[c] = from.v[c];
  }

  // Stores the candidates of a chunk. Bit e of `reach`: x[e] is a candidate.
  SPARFUSE_DEVICE void Store(auto& block, Shared& shared, std::uint32_t chunk, std::int64_t at,
                             const float* x, std::uint32_t reach, std::uint32_t lo) const {
    constexpr unsigned kWarps = kThreads / kWarp;
    const unsigned turn = chunk & 1;
    // Counts of candidates, one byte for each vector: of the lane (own), of the lanes up to it
    // (sum), of the warp (totals; 128 at most).
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
      if (block.thread() == 0) candidates.segments[chunk] = {0, 0, 0, 0};
      return;
    }
    if (block.thread() == 0) {
      const std::uint32_t offset = block.AtomicAdd(&control->count, count);
      candidates.segments[chunk] = {offset, count, 0, 0};
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

  // Byte v of the result: the number of set bits in nibble v of the 16-bit mask.
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

inline CandidateArrays CandidatesOf(const DeviceScan& scan) {
  return {scan.indices, scan.values, static_cast<std::uint32_t>(scan.capacity), scan.segments};
}

inline SendTarget TargetOf(const DeviceInput& input, const DeviceSlot& slot) {
  return {slot.indices, slot.values, static_cast<std::uint32_t>(slot.capacity), slot.report,
          input.residual};
}

template <class Measure>
Collect<Measure> CollectKernel(const DeviceScan& scan, const Measure& measure) {
  return {.source = scan.input,
          .shift = static_cast<std::uint32_t>(scan.plan.shift),
          .chunks = static_cast<std::uint32_t>(scan.plan.chunks),
          .chunks_per_span = static_cast<std::uint32_t>(scan.plan.chunks_per_span),
          .control = scan.control,
          .candidates = CandidatesOf(scan),
          .report = scan.report,
          .measure = measure};
}

}  // namespace gpu

// CollectOnDevice with a measure, which writes [scan.plan.spans] partial results to the caller's
// part of the workspace.
void CollectWithMeasure(const DeviceContext& context, DeviceScan& scan, const auto& measure) {
  gpu::Launch(context.stream, scan.plan.spans, gpu::CollectKernel(scan, measure), scan.active());
  scan.input.pending = false;
}

}  // namespace sparfuse

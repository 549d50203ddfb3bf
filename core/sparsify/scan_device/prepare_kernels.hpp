// Begins a scan (scan_kernels.hpp) in a kernel that zeroes its control and finds its bound.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan_device/device_sample.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"

namespace sparfuse::gpu {

inline constexpr std::size_t kMostSampled = 16384;

// Zeroes a control and finds control->lo: from the step before, from a sample, or 0.
struct Prepare {
  static constexpr const char* kName = "Prepare";
  static constexpr int kThreads = 512;
  using Shared = RankShared;

  ScanControl* control;
  const std::uint32_t* only_if;
  const WarmWords* warm;
  DeviceSource source;
  RandomStream stream;
  std::uint32_t lines;  // of the sample
  std::uint32_t rank;   // of the bound in the sample; 0: the bound is `lo`
  std::uint32_t* own;   // of the caller, zeroed in any case
  std::uint32_t own_size;
  const std::uint32_t* bound;
  std::uint32_t lo;  // this and what follows: of the control, as ScanOptions says
  std::uint32_t key;
  std::uint32_t least;
  std::uint32_t most;
  std::uint32_t estimate_may_miss;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared& shared) const {
    const unsigned thread = block.thread();
    const bool wanted = only_if == nullptr || *only_if != 0;
    Zero(block, own, own_size);
    if (wanted) {
      Zero(block, control->bins, kScanBins);
      Zero(block, control->measured, kMostSpans);
      Zero(block, control->counted, kMostCounting);
      Zero(block, control->refined, kMostCounting);
      Zero(block, control->exact_bins, 3 * kExactBins);
      Zero(block, control->exact_done, 3 * kExactSpans);
      Zero(block, control->exact_sums, kExactSpans);
      Zero(block, control->sums, kMostSpans);
    }
    const std::uint32_t warm_key = wanted && warm != nullptr ? warm->key : 0;
    const std::uint32_t given = wanted && bound != nullptr ? *bound : lo;
    std::uint32_t from = warm_key > 0 ? warm_key : given;
    if (wanted && warm_key == 0 && rank > 0) from = Sampled(block, shared);
    if (thread != 0) return;
    control->active = wanted ? 1 : 0;
    control->exact = 0;
    control->recollect = 0;
    if (!wanted) return;
    control->lo = from;
    control->warm = warm_key > 0 ? 1 : 0;
    control->count = 0;
    control->key = bound != nullptr ? given : key;
    control->least = least;
    control->most = most;
    control->estimate_may_miss = estimate_may_miss;
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

  // Of a stratified random sample of 64-byte lines.
  template <class Block>
  SPARFUSE_DEVICE std::uint32_t Sampled(Block& block, Shared& shared) const {
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
    block.Sync();  // the lines' place is that of the histogram

    constexpr int kCoarse = 9;  // of a key: 2^-14 of the magnitude
    return static_cast<std::uint32_t>(
        CutOfRank(block, shared, 31, kCoarse, rank, [&](const auto& count) {
          for (unsigned e = 0; e < kEach; ++e) {
            if (e * kThreads + block.thread() < sampled) count(KeyOf(x[e]));
          }
        }));
  }
};

}  // namespace sparfuse::gpu

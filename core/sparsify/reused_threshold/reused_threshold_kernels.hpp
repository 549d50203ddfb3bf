// Decides on a device whether a threshold is reused (reused_threshold.hpp describes the method).
//
// Cost between estimates, in addition to the pass: ReuseGuard, one block; and the launches of the
// inner sparsifier and LearnReused, which do nothing as a rule and take some 1.5 us each.
#pragma once

#include <cstdint>

#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/rank_kernels.hpp"

namespace sparfuse {

// The state of one tensor, on the device. All zero at first.
struct ReusedWords {
  std::uint32_t known;  // 0: no threshold is known
  std::uint32_t key;    // of the threshold; kInfinityKey if none is known
  std::uint64_t aim;    // half of it to twice as many may reach the threshold
  std::uint32_t again;  // 1: the inner sparsifier selects in this step after all; 0 before
  // Scratch of LearnReused, zero again at its end.
  std::uint32_t inverted;
  std::uint32_t searched[64];
};

namespace gpu {

// Runs after the pass. Lets the elements that reach the threshold be sent if their number is within
// a factor of 2 of the aim; else the inner sparsifier selects.
struct ReuseGuard {
  static constexpr int kThreads = 32;

  ScanControl* control;
  ReusedWords* words;
  std::uint32_t stored;    // the most candidates that are stored
  std::uint32_t capacity;  // of the slot
  SlotReport* report;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0) return;
    const std::uint64_t reaching = control->count;
    const std::uint64_t aim = words->aim;
    if (words->known != 0 && reaching > 0 && reaching <= stored && 2 * reaching >= aim &&
        reaching <= 2 * aim) {
      control->mode = SendMode::kReaching;
      control->cut = CutOf(words->key);
      control->limit = control->count;
      return;
    }
    control->active = 0;
    words->again = 1;
    report->candidates += reaching;
    if (words->known != 0) ++(reaching > capacity ? report->overflows : report->fallbacks);
  }
};

// Runs after the inner sparsifier. The threshold of the next steps becomes the smallest magnitude
// that it sent. If there is a residual, its sent elements are zeroed.
struct LearnReused {
  static constexpr int kThreads = 256;
  static constexpr std::size_t kMostBlocks = 64;

  ReusedWords* words;
  std::uint64_t count;  // elements that the inner sparsifier should send (its Count)
  const std::uint32_t* indices;
  const float* values;
  const SlotReport* report;
  float* residual;  // or null

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t sent = report->count;
    std::uint32_t inverted = 0;  // the complement of the smallest key
    for (std::uint32_t i = block.block() * kThreads + block.thread(); i < sent;
         i += block.blocks() * kThreads) {
      const std::uint32_t own = ~KeyOf(values[i]);
      inverted = inverted < own ? own : inverted;
      if (residual != nullptr) residual[indices[i]] = 0;
    }
    inverted = block.Max(inverted);
    if (block.thread() == 0) block.AtomicMax(&words->inverted, inverted);
    Announce(block, words->searched + block.block());
    if (block.block() != block.blocks() - 1) return;
    Await(block, words->searched, block.blocks());
    if (block.thread() != 0) return;
    const std::uint32_t smallest = sent == 0 ? 0 : ~words->inverted;
    words->known = smallest > 0 ? 1 : 0;
    words->key = smallest > 0 ? smallest : kInfinityKey;
    const bool near = 2 * std::uint64_t{sent} >= count && sent <= 2 * count;
    words->aim = near ? count : sent;
    words->inverted = 0;
    for (std::uint32_t b = 0; b < block.blocks(); ++b) words->searched[b] = 0;
  }
};

}  // namespace gpu
}  // namespace sparfuse

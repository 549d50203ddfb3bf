// Holds the state of adtopk-threshold for a tensor on a device, and the kernels that decide by it.
//
// In addition to the launches of device_scan.hpp a threshold phase has four small ones: three of
// one thread, and one that reads the k sent values from L2.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/send_kernels.hpp"

namespace sparfuse {

inline constexpr std::int64_t kMinTau = 5;
inline constexpr std::int64_t kMaxTau = 1000;

// Adapts the period to the change of a threshold, and notes whether the threshold is steady.
template <class Period, class Flag>
SPARFUSE_HOST_DEVICE void AdaptPeriod(float old, float now, Period* tau, Flag* steady) {
  const float change = old > now ? old - now : now - old;
  const float small = now / 10;
  if (change < small) {
    *tau += change < small / 2 ? 2 : 1;
    *steady = 1;
  } else if (change > small) {
    *tau -= change > 2 * small ? 2 : 1;
    *steady = 0;
  }
  if (*tau < kMinTau) *tau = kMinTau;
  if (*tau > kMaxTau) *tau = kMaxTau;
}

// The state of one tensor, on the device.
struct KeptThreshold {
  float threshold = 0;
  std::int32_t since_exact = 0;  // threshold phases since the last exact one
  std::int32_t tau = 0;
  std::uint32_t steady = 0;
  // Of the current phase.
  std::uint32_t all_dimension = 0;  // 1: it is all-dimension top-k instead
  std::uint32_t estimates = 0;      // 1: it is not
  std::uint32_t exact = 0;          // 1: it refreshes the threshold
  std::uint32_t smallest = 0;       // complement of the smallest key that was sent
};

namespace gpu {

struct BeginPhase {
  static constexpr int kThreads = kWarp;

  KeptThreshold* kept;
  bool warming;  // the phase is exact, whatever the state
  bool ending;   // end of training: a steady threshold is no longer needed

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0) return;
    ++kept->since_exact;
    kept->all_dimension = !warming && ending && kept->steady != 0 ? 1 : 0;
    kept->estimates = 1 - kept->all_dimension;
    kept->exact = warming || kept->since_exact >= kept->tau ? 1 : 0;
    kept->smallest = 0;
  }
};

// Chooses the elements for SendReaching: those that reach the threshold. In an exact phase it sets
// a range of counts that cannot be met, so that SendReaching sends the k largest.
struct ChooseReaching {
  static constexpr int kThreads = kWarp;

  const KeptThreshold* kept;
  ScanControl* control;
  std::uint32_t k;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0) return;
    if (kept->exact != 0) {
      control->key = control->lo;
      control->least = 0xffffffffu;
      control->most = 0;
      return;
    }
    const std::uint32_t key = KeyOf(kept->threshold);
    control->key = key;
    if (key < control->lo) control->lo = key;
    control->least = (k + 1) / 2;
    control->most = 2 * k;
  }
};

// Finds the smallest key of an exact selection.
struct FindSmallest {
  static constexpr int kThreads = 256;

  const ScanControl* control;
  const float* values;
  const SlotReport* report;
  KeptThreshold* kept;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (control->mode != SendMode::kLargest) return;
    std::uint32_t code = 0;
    for (std::size_t i = std::size_t{block.block()} * kThreads + block.thread(); i < report->count;
         i += std::size_t{block.blocks()} * kThreads) {
      code = std::max(code, ~KeyOf(values[i]));
    }
    code = block.Max(code);
    if (block.thread() == 0) block.AtomicMax(&kept->smallest, code);
  }
};

// Learns the new threshold from an exact selection, and adapts the period to its change.
struct LearnThreshold {
  static constexpr int kThreads = kWarp;

  const ScanControl* control;
  KeptThreshold* kept;
  SlotReport* report;
  bool warming;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0 || control->mode != SendMode::kLargest) return;
    if (kept->exact == 0) ++report->fallbacks;
    const float old = kept->threshold;
    const float now = MagnitudeOf(~kept->smallest);
    kept->threshold = now;
    kept->since_exact = 0;
    if (!warming) AdaptPeriod(old, now, &kept->tau, &kept->steady);
  }
};

}  // namespace gpu
}  // namespace sparfuse

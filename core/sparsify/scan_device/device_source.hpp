// Describes to kernels the memory that a selection on a device reads and writes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

// The source x = gradient + residual of a selection on a device. As for SelectInput, the first pass
// that streams over all of x does the addition, and no later pass does it again.
struct DeviceInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // null without error feedback
  std::size_t n = 0;
  bool pending = false;

  // The gradient if the residual is still to be added, else x.
  SPARFUSE_HOST_DEVICE const float* summand() const {
    return pending || residual == nullptr ? gradient : residual;
  }
  // x, if nothing is pending.
  SPARFUSE_HOST_DEVICE const float* x() const { return residual == nullptr ? gradient : residual; }
  // to[e] = x[position(e)] for e in [0, kEach). The loads are in flight together.
  template <unsigned kEach, class Position>
  SPARFUSE_DEVICE void Load(const Position& position, float* to) const {
    const float* const from = summand();
    for (unsigned e = 0; e < kEach; ++e) to[e] = from[position(e)];
    if (!pending) return;
    float old[kEach];
    for (unsigned e = 0; e < kEach; ++e) old[e] = residual[position(e)];
    for (unsigned e = 0; e < kEach; ++e) to[e] += old[e];
  }
  // Loads x[i]. In a loop over x only one load is in flight, because a branch separates the loads.
  SPARFUSE_DEVICE float At(std::uint64_t i) const {
    if (pending) return gradient[i] + residual[i];
    return residual == nullptr ? gradient[i] : residual[i];
  }
};

namespace gpu {

SPARFUSE_DEVICE float MagnitudeOf(std::uint32_t key) { return std::bit_cast<float>(key); }

SPARFUSE_DEVICE std::uint32_t CountBits(std::uint32_t mask) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__popc(mask));
#else
  return static_cast<std::uint32_t>(std::popcount(mask));
#endif
}

// The number of lanes of a mask before the calling lane.
SPARFUSE_DEVICE std::uint32_t LanesBefore(auto& block, std::uint32_t mask) {
  return CountBits(mask & ((1u << block.lane()) - 1));
}

SPARFUSE_DEVICE void NoteIfNotFinite(auto& block, SlotReport* report, std::uint32_t key,
                                     std::uint64_t index) {
  if (key < kInfinityKey) return;
  block.AtomicMax(&report->not_finite, NotFiniteCode(static_cast<std::uint32_t>(index)));
}

struct SendTarget {
  std::uint32_t* indices;
  float* values;
  std::uint32_t capacity;
  SlotReport* report;
  float* residual;  // or null
};

}  // namespace gpu
}  // namespace sparfuse

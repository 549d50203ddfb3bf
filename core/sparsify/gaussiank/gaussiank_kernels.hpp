// Decides on a device what GaussianK sends (gaussiank.cpp describes the method).
#pragma once

#include <cstdint>

#include "core/sparsify/gaussiank/gaussiank_estimate.hpp"
#include "core/sparsify/scan_device/measure_on_device.hpp"

namespace sparfuse::gpu {

struct AimAtGaussian {
  double z;
  ThresholdCorrection correction;
  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, const Statistics& statistics) const {
    correction.Apply(block, GaussianThreshold(statistics, z));
  }
};

// What the three passes of gaussiank@paper tell one another.
struct GaussianStep {
  TailKeys tries;
  std::uint32_t key;
};

struct ListTries {
  double z;
  GaussianStep* step;
  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, const Statistics& statistics) const {
    if (block.thread() != 0) return;
    const double threshold = GaussianThreshold(statistics, z);
    const GaussianWalk walk;
    step->tries.count = kGaussianTries;
    for (std::size_t i = 0; i < kGaussianTries; ++i) {
      step->tries.keys[i] = KeyAbove(threshold * walk.factors[i]);
    }
  }
};

struct ChooseTry {
  std::uint64_t k;
  GaussianStep* step;
  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, const Statistics& statistics) const {
    if (block.thread() != 0) return;
    const GaussianWalk walk;
    const std::size_t last =
        walk.Last(k, [&](std::size_t i) { return statistics.tails[i].sums.count; });
    step->key = step->tries.keys[last];
  }
};

}  // namespace sparfuse::gpu

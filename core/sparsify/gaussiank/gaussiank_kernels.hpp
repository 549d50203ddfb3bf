// Computes GaussianK's threshold, alike on the host and on devices, and decides the selection on a
// device (gaussiank.cpp describes the method).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan/quantiles.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/statistics_kernels.hpp"

namespace sparfuse {

// z: TwoSidedNormalQuantile of the density.
SPARFUSE_HOST_DEVICE double GaussianThreshold(const Statistics& statistics, double z) {
  const double variance = SampleVariance(statistics.n, statistics.sum, statistics.sum_squares);
  return NormalQuantile(statistics.Mean(), variance, z);
}

// Every threshold that the paper's three selections may take, as a factor of the first one. `lower`
// and `raised` give the threshold that follows each one after halving and after raising.
inline constexpr std::size_t kGaussianTries = 6;
struct GaussianWalk {
  double factors[kGaussianTries] = {1, 0.5, 1.5, 0.25, 0.75, 2.25};
  std::size_t lower[3] = {1, 3, 4};
  std::size_t raised[3] = {2, 4, 5};

  // The index of the threshold to send with, from the counts of all thresholds.
  SPARFUSE_HOST_DEVICE std::size_t Last(std::uint64_t k, const auto& count_of) const {
    std::size_t at = 0;
    for (int correction = 0; correction < 2; ++correction) {
      const std::uint64_t count = count_of(at);
      if (3 * count < 2 * k) {
        at = lower[at];
      } else if (3 * count > 4 * k) {
        at = raised[at];
      } else {
        break;
      }
    }
    return at;
  }
};

}  // namespace sparfuse

namespace sparfuse::gpu {

struct AimAtGaussian {
  double z;
  ThresholdCorrection correction;
  SPARFUSE_DEVICE void operator()(auto& block, const Statistics& statistics) const {
    correction.Apply(block, GaussianThreshold(statistics, z));
  }
};

// The data that the three passes of gaussiank@paper pass to one another.
struct GaussianStep {
  TailKeys tries;
  std::uint32_t key;
};

struct ListTries {
  double z;
  GaussianStep* step;
  SPARFUSE_DEVICE void operator()(auto& block, const Statistics& statistics) const {
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
  SPARFUSE_DEVICE void operator()(auto& block, const Statistics& statistics) const {
    if (block.thread() != 0) return;
    const GaussianWalk walk;
    const std::size_t last =
        walk.Last(k, [&](std::size_t i) { return statistics.tails[i].sums.count; });
    step->key = step->tries.keys[last];
  }
};

}  // namespace sparfuse::gpu

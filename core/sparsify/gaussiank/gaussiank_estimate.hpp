// Computes GaussianK's threshold from a tensor's statistics, alike on the host and on devices. The
// method is in gaussiank.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan/quantiles.hpp"
#include "core/sparsify/scan/tensor_statistics.hpp"

namespace sparfuse {

// z: TwoSidedNormalQuantile of the density.
SPARFUSE_HOST_DEVICE double GaussianThreshold(const Statistics& statistics, double z) {
  const double variance = SampleVariance(statistics.n, statistics.sum, statistics.sum_squares);
  return NormalQuantile(statistics.Mean(), variance, z);
}

// Every threshold that the paper's three selections may take, as a factor of the first one; where
// halving leads from one, and raising.
inline constexpr std::size_t kGaussianTries = 6;
struct GaussianWalk {
  double factors[kGaussianTries] = {1, 0.5, 1.5, 0.25, 0.75, 2.25};
  std::size_t lower[3] = {1, 3, 4};
  std::size_t raised[3] = {2, 4, 5};

  // The threshold that is sent, from the counts of all.
  template <class CountOf>
  SPARFUSE_HOST_DEVICE std::size_t Last(std::uint64_t k, const CountOf& count_of) const {
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

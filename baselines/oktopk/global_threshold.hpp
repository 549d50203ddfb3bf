// Keeps a threshold for the sums over ranks: exact now and then, adapted by what reaches it
// between.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, Algorithm 1 (period tau'); band and factors as in the published code, where each of
//         its applications has its own:
//
//           application                                VGG    LSTM   BERT
//           period                                     32     32     128
//           lowered where fewer than this part of k    2/3    3/4    4/5
//           divided by                                 1.008  1.01   1.036
//           raised where more than this part of k      4/3    5/4    5/4
//           multiplied by                              1.008  1.008  1.025
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/options.hpp"

namespace sparfuse::baselines {

struct GlobalThreshold {
  std::uint64_t period = 32;  // steps from one exact threshold to the next
  double band_low = 2.0 / 3;  // of k
  double band_high = 4.0 / 3;
  double lower_by = 1.008;
  double raise_by = 1.008;

  // The threshold after a step in which `count` elements reached it. Equal arguments give equal
  // bits.
  float After(float threshold, std::uint64_t count, std::size_t k) const {
    const auto reached = static_cast<double>(count);
    if (reached < band_low * static_cast<double>(k)) {
      return threshold / static_cast<float>(lower_by);
    }
    if (reached > band_high * static_cast<double>(k)) {
      return threshold * static_cast<float>(raise_by);
    }
    return threshold;
  }
};

std::vector<OptionSpec> GlobalThresholdOptions();
// Preconditions as for BoolOption.
GlobalThreshold ReadGlobalThreshold(const Options& resolved);

}  // namespace sparfuse::baselines

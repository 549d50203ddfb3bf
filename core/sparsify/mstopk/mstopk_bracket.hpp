// Computes MSTopK's bracket around the k-th magnitude, on the host and on devices. The method is in
// mstopk.cpp.
#pragma once

#include <cstdint>

#include "core/sparsify/scan/tensor_statistics.hpp"

namespace sparfuse {

struct Bracket {
  std::uint32_t upper = kInfinityKey;  // all that reach it are sent
  std::uint32_t lower = 0;
};

// next: the key of the (k + 1)-th magnitude.
SPARFUSE_HOST_DEVICE Bracket Bisect(double mean, double max, std::uint32_t next,
                                    std::int64_t iterations) {
  Bracket bracket;
  double low = 0;
  double high = 1;
  for (std::int64_t i = 0; i < iterations; ++i) {
    const double r = 0.5 * (low + high);
    const std::uint32_t key = KeyAtLeast(mean + r * (max - mean));
    if (key > next) {
      high = r;
      bracket.upper = key;
    } else {
      low = r;
      bracket.lower = key;
    }
  }
  return bracket;
}

}  // namespace sparfuse

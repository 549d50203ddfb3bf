// Computes what DGC decides before it looks at an element, alike on the host and on devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace sparfuse {

struct DgcOptions {
  double sample_ratio;
  double upper_bound;
  double lower_bound;
  std::int64_t max_iterations;
  bool resample;
  bool strided;
  bool exact_trim;
};

inline std::size_t CeilProduct(std::size_t n, double factor) {
  const auto product = static_cast<std::size_t>(std::ceil(static_cast<double>(n) * factor));
  return std::clamp<std::size_t>(product, 1, n);
}

struct DgcSample {
  std::size_t stride = 1;
  std::size_t samples = 0;  // nominal: a strided sample may hold one more
};

inline DgcSample PlanDgcSample(std::size_t n, double density, double sample_ratio) {
  const std::size_t wanted = CeilProduct(n, sample_ratio);
  const auto enough = static_cast<std::size_t>(std::ceil(2.0 / density));
  if (wanted == n || n <= enough) return {1, n};
  const std::size_t least = std::max(wanted, enough);
  // An odd stride, one more than a multiple of 32 to begin with, does not beat with rows of a
  // matrix. It comes down to 1 at the latest, where all n >= least elements are sampled.
  DgcSample plan;
  plan.stride = (n + 32 * least - 1) / (32 * least) * 32 + 1;
  while ((plan.samples = n / plan.stride) < least) plan.stride -= 8;
  return plan;
}

}  // namespace sparfuse

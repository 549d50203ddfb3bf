#include "core/feedback/momentum/clipping.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.hpp"
#include "core/feedback/norm/norm.hpp"

namespace sparfuse {

float ClipFactor(std::span<const float> gradient, double max_norm, ThreadPool& pool) {
  SPARFUSE_REQUIRE(max_norm > 0,
                   "clip = " + std::to_string(max_norm) + ": expected a norm above 0");
  const double sum = SumSquares(gradient, pool);
  if (!std::isfinite(sum)) return 1.0f;
  return static_cast<float>(std::min(1.0, max_norm / (std::sqrt(sum) + 1e-6)));
}

}  // namespace sparfuse

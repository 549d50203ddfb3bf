#include "core/feedback/clipping.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/sparsify/scan.hpp"

namespace sparfuse {

float ClipFactor(std::span<const float> gradient, double max_norm, ThreadPool& pool) {
  SPARFUSE_REQUIRE(max_norm > 0,
                   "clip = " + std::to_string(max_norm) + ": expected a norm above 0");
  constexpr std::size_t kLanes = 8;  // independent sums: a single one waits for each addition
  std::vector<double> sums((gradient.size() + kChunk - 1) / kChunk);
  pool.ParallelFor(sums.size(), [&](std::size_t c, int) {
    const std::span<const float> chunk =
        gradient.subspan(c * kChunk, std::min(kChunk, gradient.size() - c * kChunk));
    double lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= chunk.size(); i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const double x = chunk[i + lane];
        lanes[lane] += x * x;
      }
    }
    for (; i < chunk.size(); ++i) lanes[0] += static_cast<double>(chunk[i]) * chunk[i];
    for (const double lane : lanes) sums[c] += lane;
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  if (!std::isfinite(sum)) return 1.0f;
  return static_cast<float>(std::min(1.0, max_norm / (std::sqrt(sum) + 1e-6)));
}

}  // namespace sparfuse

#include "core/feedback/norm.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "core/gpu/kernel.hpp"
#include "core/sparsify/scan.hpp"

namespace sparfuse {
namespace {

using OfThreads = std::array<double, kNormThreads>;

// Each warp in a butterfly, then the warps in order. Overwrites what it is given.
double SumAsBlock(OfThreads& values) {
  constexpr std::size_t kWarp = gpu::kWarp;
  double sum = 0;
  for (std::size_t warp = 0; warp < kNormThreads; warp += kWarp) {
    double* const lanes = values.data() + warp;
    for (std::size_t half = kWarp / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    sum = warp == 0 ? lanes[0] : sum + lanes[0];
  }
  return sum;
}

double SumTile(std::span<const float> x) {
  std::array<double, kNormLanes> lanes;
  if (x.size() == kNormTile) {
    for (std::size_t lane = 0; lane < kNormLanes; ++lane) {
      double sum = 0;
      for (std::size_t row = 0; row < kNormRows; ++row) {
        const double value = x[row * kNormLanes + lane];
        sum += value * value;
      }
      lanes[lane] = sum;
    }
  } else {
    lanes.fill(0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      lanes[i % kNormLanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
  }
  OfThreads threads;
  for (std::size_t t = 0; t < kNormThreads; ++t) {
    threads[t] = (lanes[4 * t] + lanes[4 * t + 1]) + (lanes[4 * t + 2] + lanes[4 * t + 3]);
  }
  return SumAsBlock(threads);
}

}  // namespace

double SumSquares(std::span<const float> x, ThreadPool& pool) {
  constexpr std::size_t kTilesPerTask = kChunk / kNormTile;
  std::vector<double> tiles(NormTiles(x.size()));
  pool.ParallelFor((tiles.size() + kTilesPerTask - 1) / kTilesPerTask, [&](std::size_t c, int) {
    const std::size_t end = std::min(tiles.size(), (c + 1) * kTilesPerTask);
    for (std::size_t t = c * kTilesPerTask; t < end; ++t) {
      tiles[t] = SumTile(x.subspan(t * kNormTile, std::min(kNormTile, x.size() - t * kNormTile)));
    }
  });
  OfThreads threads{};
  for (std::size_t t = 0; t < tiles.size(); ++t) threads[t % kNormThreads] += tiles[t];
  return SumAsBlock(threads);
}

}  // namespace sparfuse

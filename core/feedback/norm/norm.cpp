#include "core/feedback/norm/norm.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/error.hpp"
#include "core/device/kernel.hpp"
#include "core/device/launch.hpp"
#include "core/feedback/norm/norm_kernels.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {
namespace {

using OfThreads = std::array<double, kNormThreads>;

// Sums each warp in a butterfly, then the warps in order. Overwrites its argument.
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

// Computes the numbers of a piece. x: [kNormPiece]
void SumPiece(const float* x, double* threads) {
  constexpr std::size_t kAtOnce = 8;  // lanes whose sums stay in registers
  constexpr std::size_t kPrefetch = 2 * kNormPiece;
  for (std::size_t first = 0; first < kNormLanes; first += kAtOnce) {
    // The rows lie too far apart for the hardware prefetcher.
    for (std::size_t row = 0; row < kNormRows; row += 2) {
      __builtin_prefetch(x + kPrefetch + first * kNormRows + row * kAtOnce);
    }
    double lanes[kAtOnce] = {};
#pragma GCC unroll 1  // unrolled, the loop would not be vectorised
    for (std::size_t row = 0; row < kNormRows; ++row) {
      for (std::size_t lane = 0; lane < kAtOnce; ++lane) {
        const double value = x[row * kNormLanes + first + lane];
        lanes[lane] += value * value;
      }
    }
    for (std::size_t lane = 0; lane < kAtOnce; lane += 4) {
      threads[(first + lane) / 4] =
          (lanes[lane] + lanes[lane + 1]) + (lanes[lane + 2] + lanes[lane + 3]);
    }
  }
}

double SumTile(std::span<const float> x) {
  OfThreads threads{};
  std::size_t piece = 0;
  const auto numbers = [&] { return threads.data() + piece * (kNormLanes / 4); };
  for (; (piece + 1) * kNormPiece <= x.size(); ++piece) {
    SumPiece(x.data() + piece * kNormPiece, numbers());
  }
  const std::span<const float> rest = x.subspan(piece * kNormPiece);
  if (!rest.empty()) {
    std::array<float, kNormPiece> padded{};  // a zero changes no sum of squares
    std::copy(rest.begin(), rest.end(), padded.begin());
    SumPiece(padded.data(), numbers());
  }
  return SumAsBlock(threads);
}

void LaunchSumSquares(const Stream& stream, DeviceWorkspace& workspace, DeviceSpan<const float> x,
                      double* sum, float* factor, double max_norm) {
  const std::size_t tiles = NormTiles(x.size);
  auto* const of_tiles = workspace.Get<double>(stream, kUseNormTiles, tiles);
  gpu::Quads quads = gpu::QuadsOf(x.size, x.data);
  if (quads.skew != 0) quads = gpu::Quads(x.size, 0, false);
  gpu::Launch(stream, tiles, gpu::SumSquaresOfTiles{quads, x.data, of_tiles});
  gpu::Launch(stream, 1, gpu::SumTiles{of_tiles, tiles, sum, factor, max_norm});
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

void SumSquaresOnDevice(const Stream& stream, DeviceWorkspace& workspace, DeviceSpan<const float> x,
                        double* sum) {
  LaunchSumSquares(stream, workspace, x, sum, nullptr, 0);
}

void ClipFactorOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                        DeviceSpan<const float> gradient, double max_norm, float* factor) {
  SPARFUSE_REQUIRE(max_norm > 0, "clip = ", max_norm, ": expected a norm above 0");
  LaunchSumSquares(stream, workspace, gradient, nullptr, factor, max_norm);
}

}  // namespace sparfuse

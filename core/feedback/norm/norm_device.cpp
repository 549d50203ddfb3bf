// Computes norms, and the factors that clip by them, on a device.
#include <string>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/feedback/norm/norm_kernels.hpp"

namespace sparfuse {
namespace {

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

void SumSquaresOnDevice(const Stream& stream, DeviceWorkspace& workspace, DeviceSpan<const float> x,
                        double* sum) {
  LaunchSumSquares(stream, workspace, x, sum, nullptr, 0);
}

void ClipFactorOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                        DeviceSpan<const float> gradient, double max_norm, float* factor) {
  SPARFUSE_REQUIRE(max_norm > 0,
                   "clip = " + std::to_string(max_norm) + ": expected a norm above 0");
  LaunchSumSquares(stream, workspace, gradient, nullptr, factor, max_norm);
}

}  // namespace sparfuse

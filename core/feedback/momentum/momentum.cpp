#include "core/feedback/momentum/momentum.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/feedback/momentum/momentum_kernels.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

MomentumCorrection::MomentumCorrection(std::size_t numel, const MomentumOptions& options)
    : options_(options), velocities_(numel) {
  SPARFUSE_REQUIRE(options.momentum >= 0 && options.momentum < 1, "momentum = ", options.momentum,
                   ": expected a number in [0, 1)");
}

std::span<const float> MomentumCorrection::Advance(std::string_view name, Range range,
                                                   std::span<const float> gradient, float scale,
                                                   ThreadPool& pool) {
  const std::span<float> velocity = velocities_.Get(name, range).host();
  if (options_.nesterov && growth_.size() < range.size()) growth_ = Buffer<float>(range.size());
  return AdvanceVelocity(options_, gradient, scale, velocity, growth_.host(), pool);
}

std::span<const float> AdvanceVelocity(const MomentumOptions& options,
                                       std::span<const float> gradient, float scale,
                                       std::span<float> velocity, std::span<float> growth,
                                       ThreadPool& pool) {
  assert(gradient.size() == velocity.size());
  const std::size_t n = gradient.size();
  const auto momentum = static_cast<float>(options.momentum);
  if (n == 0) return {};
  const std::size_t chunk_size = ChunkSize(n);
  pool.ParallelFor((n + chunk_size - 1) / chunk_size, [&](std::size_t c, int) {
    const std::size_t begin = c * chunk_size;
    const std::size_t size = std::min(chunk_size, n - begin);
    const float* const g = gradient.data() + begin;
    float* const u = velocity.data() + begin;
    if (!options.nesterov) {
      for (std::size_t i = 0; i < size; ++i) u[i] = momentum * u[i] + scale * g[i];
      return;
    }
    float* const grown = growth.data() + begin;
    for (std::size_t i = 0; i < size; ++i) {
      const float step = scale * g[i];
      u[i] = momentum * (u[i] + step);
      grown[i] = u[i] + step;
    }
  });
  return options.nesterov ? growth.first(n) : velocity;
}

void MaskVelocity(const MomentumOptions& options, std::span<const std::uint32_t> sent,
                  std::span<float> velocity) {
  if (!options.masking) return;
  for (const std::uint32_t i : sent) velocity[i] = 0.0f;
}

float ClipFactor(std::span<const float> gradient, double max_norm, ThreadPool& pool) {
  SPARFUSE_REQUIRE(max_norm > 0, "clip = ", max_norm, ": expected a norm above 0");
  const double sum = SumSquares(gradient, pool);
  if (!std::isfinite(sum)) return 1.0f;
  return static_cast<float>(std::min(1.0, max_norm / (std::sqrt(sum) + 1e-6)));
}

DeviceSpan<const float> AdvanceVelocityOnDevice(const Stream& stream,
                                                const MomentumOptions& options,
                                                DeviceSpan<const float> gradient,
                                                const float* factor, DeviceSpan<float> velocity,
                                                DeviceSpan<float> growth) {
  assert(gradient.size == velocity.size);
  const std::size_t n = gradient.size;
  const auto momentum = static_cast<float>(options.momentum);
  if (!options.nesterov) {
    const gpu::Quads quads = gpu::QuadsOf(n, gradient.data, velocity.data);
    gpu::Launch(stream, gpu::ElementwiseBlocks(quads),
                gpu::AdvanceVelocities<false>{quads, gradient.data, factor, momentum, velocity.data,
                                              nullptr});
    return {velocity.data, n, stream};
  }
  assert(growth.size >= n);
  const gpu::Quads quads = gpu::QuadsOf(n, gradient.data, velocity.data, growth.data);
  gpu::Launch(stream, gpu::ElementwiseBlocks(quads),
              gpu::AdvanceVelocities<true>{quads, gradient.data, factor, momentum, velocity.data,
                                           growth.data});
  return {growth.data, n, stream};
}

void MaskVelocityOnDevice(const Stream& stream, const MomentumOptions& options,
                          const DeviceSlot& sent, DeviceSpan<float> velocity) {
  if (!options.masking) return;
  using Kernel = gpu::MaskVelocities;
  gpu::Launch(
      stream, Kernel::BlocksFor(sent.capacity),
      Kernel{sent.indices, sent.report, static_cast<std::uint32_t>(sent.capacity), velocity.data});
}

}  // namespace sparfuse

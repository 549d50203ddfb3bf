#include "core/feedback/momentum/momentum.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/error.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

MomentumCorrection::MomentumCorrection(std::size_t numel, const MomentumOptions& options)
    : options_(options), velocities_(numel) {
  SPARFUSE_REQUIRE(
      options.momentum >= 0 && options.momentum < 1,
      "momentum = " + std::to_string(options.momentum) + ": expected a number in [0, 1)");
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

void MomentumCorrection::Sent(std::string_view name, Range range,
                              std::span<const std::uint32_t> indices) {
  MaskVelocity(options_, indices, velocities_.Get(name, range).host());
}

void MaskVelocity(const MomentumOptions& options, std::span<const std::uint32_t> sent,
                  std::span<float> velocity) {
  if (!options.masking) return;
  for (const std::uint32_t i : sent) velocity[i] = 0.0f;
}

std::span<const float> MomentumCorrection::Velocity(std::string_view name, Range range) {
  return velocities_.Get(name, range).host();
}

}  // namespace sparfuse

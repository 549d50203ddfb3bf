#include "core/feedback/momentum.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/error.hpp"
#include "core/sparsify/scan.hpp"

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
  assert(gradient.size() == range.size());
  const std::size_t n = range.size();
  const std::span<float> velocity = velocities_.Get(name, range).host();
  if (options_.nesterov && growth_.size() < n) growth_ = Buffer<float>(n);
  const auto momentum = static_cast<float>(options_.momentum);
  if (n == 0) return {};
  const std::size_t chunk_size = ChunkSize(n);
  pool.ParallelFor((n + chunk_size - 1) / chunk_size, [&](std::size_t c, int) {
    const std::size_t begin = c * chunk_size;
    const std::size_t size = std::min(chunk_size, n - begin);
    const float* const g = gradient.data() + begin;
    float* const u = velocity.data() + begin;
    if (!options_.nesterov) {
      for (std::size_t i = 0; i < size; ++i) u[i] = momentum * u[i] + scale * g[i];
      return;
    }
    float* const growth = growth_.data() + begin;
    for (std::size_t i = 0; i < size; ++i) {
      const float step = scale * g[i];
      u[i] = momentum * (u[i] + step);
      growth[i] = u[i] + step;
    }
  });
  return options_.nesterov ? growth_.host().first(n) : velocity;
}

void MomentumCorrection::Sent(std::string_view name, Range range,
                              std::span<const std::uint32_t> indices) {
  if (!options_.masking) return;
  const std::span<float> velocity = velocities_.Get(name, range).host();
  for (const std::uint32_t i : indices) velocity[i] = 0.0f;
}

std::span<const float> MomentumCorrection::Velocity(std::string_view name, Range range) {
  return velocities_.Get(name, range).host();
}

}  // namespace sparfuse

#include "workloads/data/sampler.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse::workloads {

std::uint64_t RandomBits(std::uint64_t key, std::uint64_t index) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  };
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  return mix(mix(key + kGolden) + (index + 1) * kGolden);
}

Sampler::Sampler(const Config& config)
    : config_(config), permuted_epoch_(std::numeric_limits<std::uint64_t>::max()) {
  SPARFUSE_REQUIRE(config.world >= 1 && config.rank >= 0 && config.rank < config.world,
                   "workload: rank " + std::to_string(config.rank) + " of " +
                       std::to_string(config.world) + " workers does not exist");
  SPARFUSE_REQUIRE(
      config.accumulation >= 1,
      "workload: accumulation is " + std::to_string(config.accumulation) + ", expected at least 1");
  SPARFUSE_REQUIRE(config.batch >= 1, "workload: batch_per_worker is 0, expected at least 1");
  const std::size_t per_step = config.batch * static_cast<std::size_t>(config.world) *
                               static_cast<std::size_t>(config.accumulation);
  const std::size_t parts = per_step / config.batch;  // micro-steps of all ranks
  const std::size_t wrapped = (config.samples + parts - 1) / parts * parts;
  steps_per_epoch_ = config.wrap ? (wrapped + per_step - 1) / per_step : config.samples / per_step;
  SPARFUSE_REQUIRE(
      steps_per_epoch_ >= 1,
      "workload: one step takes " + std::to_string(per_step) +
          " samples (workers * accumulation * batch_per_worker), but the training data has " +
          std::to_string(config.samples));
  if (config.columns > 0) {
    SPARFUSE_REQUIRE(config.columns == per_step && config.accumulation == 1,
                     "recipe: state = \"carried\": a step takes " + std::to_string(per_step) +
                         " windows; expected as many as the text has columns, " +
                         std::to_string(config.columns) + ", and accumulation = 1");
    permutation_.resize(config.columns);
    return;
  }
  permutation_.resize(config.wrap ? wrapped : config.samples);
}

std::span<const std::uint32_t> Sampler::Batch(std::uint64_t step, int micro_step) {
  const std::uint64_t epoch = EpochOf(step);
  if (epoch != permuted_epoch_) {
    const std::span<std::uint32_t> all =
        std::span(permutation_).first(std::min(config_.samples, permutation_.size()));
    std::iota(all.begin(), all.end(), 0u);
    const std::uint64_t key = RandomBits(config_.seed, epoch);
    for (std::size_t i = all.size(); i > 1; --i) {
      std::swap(all[i - 1], all[RandomBits(key, i) % i]);
    }
    for (std::size_t i = all.size(); i < permutation_.size(); ++i)
      permutation_[i] = all[(i - all.size()) % all.size()];
    permuted_epoch_ = epoch;
  }
  if (config_.columns > 0) {
    const std::uint64_t window = step % steps_per_epoch_;
    const auto mine =
        std::span<const std::uint32_t>(permutation_)
            .subspan(static_cast<std::size_t>(config_.rank) * config_.batch, config_.batch);
    windows_.clear();
    for (const std::uint32_t column : mine)
      windows_.push_back(static_cast<std::uint32_t>(window * config_.columns + column));
    return windows_;
  }
  const auto accumulation = static_cast<std::size_t>(config_.accumulation);
  const std::size_t parts = static_cast<std::size_t>(config_.world) * accumulation;
  const std::size_t first = (step % steps_per_epoch_) * parts * config_.batch;
  const std::size_t batch =
      std::min(config_.batch, (permutation_.size() - first) / parts);  // smaller in a last step
  const std::size_t part =
      static_cast<std::size_t>(config_.rank) * accumulation + static_cast<std::size_t>(micro_step);
  return std::span<const std::uint32_t>(permutation_).subspan(first + part * batch, batch);
}

}  // namespace sparfuse::workloads

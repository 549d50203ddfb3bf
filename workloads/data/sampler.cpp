#include "workloads/data/sampler.hpp"

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
  steps_per_epoch_ = config.samples / per_step;
  SPARFUSE_REQUIRE(steps_per_epoch_ >= 1,
                   "workload: one step takes " + std::to_string(per_step) +
                       " samples (workers * accumulation * batch_per_worker), the training data "
                       "has " +
                       std::to_string(config.samples));
  permutation_.resize(config.samples);
}

std::span<const std::uint32_t> Sampler::Batch(std::uint64_t step, int micro_step) {
  const std::uint64_t epoch = EpochOf(step);
  if (epoch != permuted_epoch_) {
    std::iota(permutation_.begin(), permutation_.end(), 0u);
    const std::uint64_t key = RandomBits(config_.seed, epoch);
    for (std::size_t i = permutation_.size(); i > 1; --i) {
      std::swap(permutation_[i - 1], permutation_[RandomBits(key, i) % i]);
    }
    permuted_epoch_ = epoch;
  }
  const auto accumulation = static_cast<std::size_t>(config_.accumulation);
  const std::size_t rank_batches = static_cast<std::size_t>(config_.world) * accumulation;
  const std::size_t batch = (step % steps_per_epoch_) * rank_batches +
                            static_cast<std::size_t>(config_.rank) * accumulation +
                            static_cast<std::size_t>(micro_step);
  return std::span<const std::uint32_t>(permutation_).subspan(batch * config_.batch, config_.batch);
}

}  // namespace sparfuse::workloads

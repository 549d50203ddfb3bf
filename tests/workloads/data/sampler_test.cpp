// Tests that over ranks, micro-steps and steps an epoch deals each sample at most once, the same
// however the work is cut.
#include "workloads/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/base/error.hpp"

namespace sparfuse::workloads {
namespace {

constexpr std::size_t kSamples = 1003;

Sampler Make(int rank, int world, int accumulation, std::size_t batch, std::uint64_t seed = 7) {
  return Sampler({.samples = kSamples,
                  .batch = batch,
                  .rank = rank,
                  .world = world,
                  .accumulation = accumulation,
                  .seed = seed});
}

// The samples of all ranks at a step, in the order of ranks and micro-steps.
std::vector<std::uint32_t> StepSamples(std::uint64_t step, int world, int accumulation,
                                       std::size_t batch) {
  std::vector<std::uint32_t> samples;
  for (int rank = 0; rank < world; ++rank) {
    Sampler sampler = Make(rank, world, accumulation, batch);
    for (int micro = 0; micro < accumulation; ++micro) {
      const auto part = sampler.Batch(step, micro);
      EXPECT_EQ(part.size(), batch);
      samples.insert(samples.end(), part.begin(), part.end());
    }
  }
  return samples;
}

TEST(Sampler, AnEpochCoversTheDataOnce) {
  for (const int world : {1, 2, 3, 8}) {
    for (const int accumulation : {1, 3}) {
      const std::uint64_t steps = Make(0, world, accumulation, 5).steps_per_epoch();
      for (const std::uint64_t epoch : {0, 2}) {
        std::set<std::uint32_t> seen;
        std::size_t dealt = 0;
        for (std::uint64_t s = epoch * steps; s < (epoch + 1) * steps; ++s) {
          for (const std::uint32_t sample : StepSamples(s, world, accumulation, 5)) {
            EXPECT_LT(sample, kSamples);
            seen.insert(sample);
            ++dealt;
          }
        }
        EXPECT_EQ(seen.size(), dealt) << "a sample was dealt twice";
        EXPECT_LT(kSamples - dealt, static_cast<std::size_t>(world * accumulation) * 5)
            << "a whole step was dropped";
      }
    }
  }
}

TEST(Sampler, AStepTakesTheSameSamplesHoweverItIsCut) {
  for (const std::uint64_t step : {0, 1, 17, 40, 200}) {
    const auto whole = StepSamples(step, 1, 1, 24);
    EXPECT_EQ(whole, StepSamples(step, 2, 1, 12));
    EXPECT_EQ(whole, StepSamples(step, 1, 4, 6));
    EXPECT_EQ(whole, StepSamples(step, 3, 2, 4));
  }
}

TEST(Sampler, DependsOnSeedAndEpochAndNotOnThePast) {
  Sampler sampler = Make(0, 1, 1, 100);
  const auto copy = [](std::span<const std::uint32_t> s) {
    return std::vector<std::uint32_t>(s.begin(), s.end());
  };
  const auto first = copy(sampler.Batch(0, 0));
  const auto next_epoch = copy(sampler.Batch(sampler.steps_per_epoch(), 0));
  EXPECT_NE(first, next_epoch);
  EXPECT_EQ(first, copy(sampler.Batch(0, 0)));
  EXPECT_NE(first, copy(Make(0, 1, 1, 100, 8).Batch(0, 0)));
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST(Sampler, RefusesWhatCannotBeDealt) {
  EXPECT_THROW(Make(0, 2, 1, 502), Error);
  EXPECT_NO_THROW(Make(0, 2, 1, 501));
  EXPECT_THROW(Make(2, 2, 1, 5), Error);
  EXPECT_THROW(Make(-1, 2, 1, 5), Error);
  EXPECT_THROW(Make(0, 1, 0, 5), Error);
  EXPECT_THROW(Make(0, 1, 1, 0), Error);
}

}  // namespace
}  // namespace sparfuse::workloads

// Tests the model of the overlap of ranks' selections: its limits, and a sum over the distribution
// that it stands for.
#include "core/collective/overlap.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sparfuse {
namespace {

TEST(Overlap, IndependentRanksAreTheFormulaOfTheSpecification) {
  const OverlapModel independent;
  EXPECT_NEAR(independent.Union(0.01, 8), 1 - std::pow(0.99, 8), 1e-14);
  EXPECT_DOUBLE_EQ(independent.Union(0.01, 1), 0.01);
  EXPECT_NEAR(OverlapModel{1e-9}.Union(0.01, 8), independent.Union(0.01, 8), 1e-9) << "continuous";
}

TEST(Overlap, RanksThatSelectTheSameHaveNoMoreTogether) {
  EXPECT_DOUBLE_EQ(OverlapModel{1}.Union(0.01, 1024), 0.01);
  EXPECT_NEAR(OverlapModel{0.999999}.Union(0.01, 64), 0.01, 1e-5);
}

// gamma(2) = Union(rho, 2) / rho = 2 - rho - (1 - rho) theta.
TEST(Overlap, OfTwoRanksIsLinearInTheta) {
  for (const double theta : {0.0, 0.1, 0.5, 0.9}) {
    EXPECT_NEAR(OverlapModel{theta}.Union(0.02, 2), 0.02 * (2 - 0.02 - 0.98 * theta), 1e-14);
  }
}

TEST(Overlap, UnionsAreThoseOfBetaDistributedProbabilities) {
  const OverlapModel model{0.3};
  const double density = 0.05;
  const double a = density * (1 / model.theta - 1);
  const double b = (1 - density) * (1 / model.theta - 1);
  std::mt19937_64 random(5);
  std::gamma_distribution<double> of_a(a), of_b(b);
  constexpr int kElements = 200'000;
  for (const std::size_t ranks : {2u, 8u, 64u}) {
    double sum = 0;
    for (int i = 0; i < kElements; ++i) {
      const double x = of_a(random);
      const double y = of_b(random);
      sum += 1 - std::pow(1 - x / (x + y), static_cast<double>(ranks));
    }
    const double part = sum / kElements;
    EXPECT_NEAR(model.Union(density, ranks), part, 4 * std::sqrt(part / kElements)) << ranks;
  }
}

// The published shares of OmniReduce's blocks of 256 that are non-zero. At density 0.1 %: 22.6 %
// for one rank, 87.1 % for 8 ranks, 98.3 % for 16. At 1 %: 92.4 % for one rank.
TEST(Overlap, BlocksOfUnstructuredSelectionsAreSoonAllAskedFor) {
  const OverlapModel independent;
  EXPECT_NEAR(independent.BlockUnion(0.001, 256, 1), 0.226, 5e-4);
  EXPECT_NEAR(independent.BlockUnion(0.001, 256, 8), 0.871, 5e-4);
  EXPECT_NEAR(independent.BlockUnion(0.001, 256, 16), 0.983, 5e-4);
  EXPECT_NEAR(independent.BlockUnion(0.01, 256, 1), 0.924, 5e-4);
}

// Groups of 256 elements are selected whole, so the share of blocks of 256 equals the share of
// elements. Groups of 64 give a block of 256 four chances; a group of 512 covers two blocks.
TEST(Overlap, WhatIsSelectedTogetherAsksForFewBlocks) {
  for (const double theta : {0.0, 0.3}) {
    OverlapModel blocks{.theta = theta, .together = 256};
    EXPECT_DOUBLE_EQ(blocks.BlockUnion(0.01, 256, 1), 0.01);
    EXPECT_DOUBLE_EQ(blocks.BlockUnion(0.01, 256, 8), blocks.Union(0.01, 8));
    blocks.together = 512;
    EXPECT_DOUBLE_EQ(blocks.BlockUnion(0.01, 256, 8), blocks.Union(0.01, 8));
    blocks.together = 64;
    EXPECT_NEAR(blocks.BlockUnion(0.01, 256, 1), 1 - std::pow(0.99, 4), 1e-12);
  }
}

TEST(Overlap, TheFullestRegionIsThatOfLognormals) {
  const OverlapModel skewed{0, 0.5};
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal;
  for (const int regions : {2, 8, 64}) {
    double sum = 0;
    constexpr int kDraws = 20'000;
    for (int draw = 0; draw < kDraws; ++draw) {
      double most = 0, all = 0;
      for (int r = 0; r < regions; ++r) {
        const double density = std::exp(0.5 * normal(random));
        most = std::max(most, density);
        all += density;
      }
      sum += most * regions / all;
    }
    EXPECT_NEAR(skewed.LargestRegion(static_cast<std::size_t>(regions)), sum / kDraws,
                0.03 * sum / kDraws)
        << regions;
  }
  EXPECT_EQ(OverlapModel{}.LargestRegion(64), 1.0);
}

TEST(Overlap, TheFullestRegionHasNoMoreThanEverything) {
  double before = 1;
  for (const double skew : {0.5, 1.0, 2.0, 4.0, 8.0}) {
    const double largest = OverlapModel{.skew = skew}.LargestRegion(4);
    EXPECT_GT(largest, before);
    EXPECT_LE(largest, 4.0);
    before = largest;
  }
}

TEST(Overlap, RegionsWithinAGrainAreAlike) {
  const OverlapModel gates{.skew = 1.6, .grains = 4};
  const OverlapModel any{.skew = 1.6};
  EXPECT_EQ(gates.LargestRegion(2), any.LargestRegion(2));
  EXPECT_EQ(gates.LargestRegion(4), any.LargestRegion(4));
  EXPECT_EQ(gates.LargestRegion(64), any.LargestRegion(4));
}

}  // namespace
}  // namespace sparfuse

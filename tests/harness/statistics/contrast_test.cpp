// Tests whether two systems agree on a ratio.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

using Values = std::vector<double>;

Values LogNormal(std::mt19937_64& random, double center, double deviation, std::size_t n) {
  std::normal_distribution<double> normal(0, deviation);
  Values values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(center * std::exp(normal(random)));
  return values;
}

TEST(Contrast, IsTheIntervalOfLogarithmsWithTheFreedomOfTheFewerBlocks) {
  // Logarithms 0, 1, 2 and 0, 2, 4, 6: means 1 and 3, variances 1 and 20/3; the standard error is
  // sqrt(1/3 + 5/3) = sqrt(2), the freedom 2, for which t(0.975) is 4.30265.
  const Values first = {1, std::exp(1.0), std::exp(2.0)};
  const Values second = {1, std::exp(2.0), std::exp(4.0), std::exp(6.0)};
  const Contrast contrast = ContrastOf(first, second, 0.05);
  EXPECT_NEAR(std::log(contrast.ratio.value), -2, 1e-12);
  EXPECT_NEAR(std::log(contrast.ratio.high), -2 + 4.30265 * std::sqrt(2.0), 1e-4);
  EXPECT_NEAR(std::log(contrast.ratio.low), -2 - 4.30265 * std::sqrt(2.0), 1e-4);
  EXPECT_EQ(contrast.ratio.n, 3u);
  EXPECT_EQ(contrast.agreement, Agreement::kUndecided);
}

TEST(Contrast, EqualValuesNeverDiffer) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const Values values = LogNormal(random, 1.3, 0.001 * i, 1 + static_cast<std::size_t>(i % 6));
    const Contrast contrast = ContrastOf(values, values, 0.05);
    EXPECT_TRUE(contrast.agreement == Agreement::kAgree ||
                contrast.agreement == Agreement::kUndecided);
    EXPECT_DOUBLE_EQ(contrast.ratio.value, 1);
  }
  EXPECT_EQ(ContrastOf(Values{1.2, 1.2}, Values{1.2, 1.2}, 0.05).agreement, Agreement::kAgree);
}

TEST(Contrast, OneBlockDecidesNothing) {
  const Contrast contrast = ContrastOf(Values{2}, Values{1, 1.01}, 0.05);
  EXPECT_EQ(contrast.agreement, Agreement::kUndecided);
  EXPECT_EQ(contrast.blocks_needed, 0u);
  EXPECT_FALSE(contrast.ratio.has_bounds());
}

TEST(Contrast, SaysOnWhichSideItIsLarger) {
  const Values large = {1.50, 1.51, 1.49}, small = {1.20, 1.21, 1.19};
  EXPECT_EQ(ContrastOf(large, small, 0.05).agreement, Agreement::kFirst);
  EXPECT_EQ(ContrastOf(small, large, 0.05).agreement, Agreement::kSecond);
  // What is within the margin for certain agrees, be the difference never so certain.
  EXPECT_EQ(ContrastOf(large, small, 0.5).agreement, Agreement::kAgree);
}

TEST(Contrast, ClaimsAtMostOneInTwentyOfEquals) {
  std::mt19937_64 random(11);
  constexpr int kPairs = 1000;
  for (const double deviation : {0.01, 0.05, 0.3}) {
    int claims = 0;
    for (int i = 0; i < kPairs; ++i) {
      const Values first = LogNormal(random, 1, deviation, 3 + static_cast<std::size_t>(i % 6));
      const Values second = LogNormal(random, 1, 2 * deviation, 3);
      const Agreement agreement = ContrastOf(first, second, 0.05).agreement;
      claims += agreement == Agreement::kFirst || agreement == Agreement::kSecond;
    }
    EXPECT_LE(claims, kPairs / 20) << deviation;
  }
}

TEST(Contrast, AsManyBlocksAsItAsksForDecide) {
  std::mt19937_64 random(7);
  int undecided = 0;
  int decided = 0;
  for (int i = 0; i < 200; ++i) {
    const Values first = LogNormal(random, 1.1, 0.05, 4);
    const Values second = LogNormal(random, 1, 0.05, 4);
    const Contrast contrast = ContrastOf(first, second, 0.05);
    if (contrast.agreement != Agreement::kUndecided) continue;
    ++undecided;
    EXPECT_GT(contrast.blocks_needed, 4u);
    // Values that go on as they are: the four again and again.
    Values more_first, more_second;
    for (std::size_t block = 0; block < 2 * contrast.blocks_needed; ++block) {
      more_first.push_back(first[block % 4]);
      more_second.push_back(second[block % 4]);
    }
    decided += ContrastOf(more_first, more_second, 0.05).agreement != Agreement::kUndecided;
  }
  EXPECT_GT(undecided, 20);
  EXPECT_EQ(decided, undecided);
}

}  // namespace
}  // namespace sparfuse::harness

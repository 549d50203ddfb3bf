// Tests RedSync against its definition: the trimmed search, and the exact cut behind it.
#include <gtest/gtest.h>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

TEST(RedSync, SendsTheLargestOfTheTrimmedSet) {
  const auto redsync = MakeSparsifier("redsync");
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {2, 33, 9000, 300'007}) {
      for (const double density : {0.001, 0.01, 0.3}) {
        if (n > 10'000 && density != 0.01) continue;  // no new path, much time
        Selection selection(*redsync, n, density, 2, true);
        for (std::uint64_t step = 0; step < 5; ++step) {
          const auto gradient = MakeData(data, n, static_cast<std::uint32_t>(step));
          std::vector<float> x = gradient;
          for (std::size_t i = 0; i < n; ++i) x[i] = gradient[i] + selection.residual()[i];
          ASSERT_EQ(selection.Run(gradient, step).indices,
                    LargestByDefinition(x, KeptCount(n, density)).indices)
              << data << " n=" << n << " density=" << density << " step=" << step;
        }
      }
    }
  }
}

// With mean M and maximum X, the first of M + r (X - M), r = 0.8, 0.6, ..., that k elements exceed.
TEST(RedSync, TrimsAtTheFirstThresholdThatKExceed) {
  constexpr std::size_t kN = 20'000;
  const auto redsync = MakeSparsifier("redsync");
  for (const char* data : {"gaussian", "laplace", "ascending", "layers"}) {
    for (const double density : {0.0001, 0.001, 0.01, 0.1}) {
      const auto x = MakeData(data, kN, 1);
      double sum = 0;
      double max = 0;
      for (const float v : x) {
        sum += std::abs(static_cast<double>(v));
        max = std::max(max, std::abs(static_cast<double>(v)));
      }
      const double mean = sum / kN;
      std::size_t survivors = 0;
      for (const double r : {0.8, 0.6, 0.4, 0.2, 0.0}) {
        survivors = static_cast<std::size_t>(std::count_if(x.begin(), x.end(), [&](float v) {
          return std::abs(static_cast<double>(v)) > mean + r * (max - mean);
        }));
        if (survivors >= KeptCount(kN, density)) break;
      }
      Selection selection(*redsync, kN, density, 1, false);
      selection.Run(x, 0);
      EXPECT_EQ(selection.counters().candidates, survivors) << data << " density=" << density;
      EXPECT_EQ(selection.counters().fallbacks, 0u);
    }
  }
}

TEST(RedSync, EndsItsSearchAtTheMean) {
  const auto redsync = MakeSparsifier("redsync");
  constexpr std::size_t kN = 10'000;
  std::vector<float> constant(kN, -0.25f);
  Selection equal(*redsync, kN, 0.01, 1, false);
  EXPECT_EQ(equal.Run(constant, 0).indices, LargestByDefinition(constant, 100).indices);
  EXPECT_EQ(equal.counters().fallbacks, 1u);
  // One outlier above a constant: one element exceeds the mean, and k = 100 are wanted.
  constant[777] = 1e6f;
  Selection outlier(*redsync, kN, 0.01, 1, false);
  EXPECT_EQ(outlier.Run(constant, 0).indices, LargestByDefinition(constant, 100).indices);
  EXPECT_EQ(outlier.counters().fallbacks, 1u);
}

}  // namespace
}  // namespace sparfuse::testing

// Tests that every element that is not 0 is sent, at any density.
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

TEST(Nonzeros, SendsAllThatIsNotZero) {
  const auto nonzeros = MakeSparsifier("nonzeros");
  for (const char* data : {"gaussian", "few-values", "sparse", "denormal", "spike", "equal"}) {
    for (const std::size_t n : {1, 33, 9000, 300'007}) {
      for (const int threads : {1, 3}) {
        for (const double density : {1e-6, 0.5}) {
          const auto x = MakeData(data, n, 1);
          const auto expected = Where(x, [](float v) { return v != 0.0f; }).indices;
          Selection selection(*nonzeros, n, density, threads, false);
          if (n == 1) continue;  // the density of one element is 1
          EXPECT_EQ(selection.Run(x, 0).indices, expected)
              << data << " n=" << n << " threads=" << threads << " density=" << density;
          EXPECT_EQ(selection.counters().overflows, 0u);
        }
      }
    }
  }
}

TEST(Nonzeros, TakesTheSmallestAndNoZeroOfEitherSign) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  Selection selection(MakeSparsifier("nonzeros"), 6, 0.2, 1, true);
  const auto selected = selection.Run({0.0f, -tiny, -0.0f, 3.0f, 0.0f, tiny}, 0);
  EXPECT_EQ(selected.indices, (std::vector<std::uint32_t>{1, 3, 5}));
  EXPECT_EQ(selected.values, (std::vector<float>{-tiny, 3.0f, tiny}));
  EXPECT_EQ(selection.residual(), std::vector<float>(6, 0.0f));
}

TEST(Nonzeros, SendsNothingOfNothing) {
  const auto nonzeros = MakeSparsifier("nonzeros");
  for (const int threads : {1, 3}) {
    Selection selection(*nonzeros, 300'000, 0.01, threads, false);
    EXPECT_TRUE(selection.Run(std::vector<float>(300'000, 0.0f), 0).indices.empty());
  }
}

}  // namespace
}  // namespace sparfuse::testing

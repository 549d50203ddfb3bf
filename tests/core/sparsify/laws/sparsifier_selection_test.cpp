// Tests exact top-k by its definition: every kind of data, shape, density, instruction set, pool.
#include <gtest/gtest.h>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

class TopKByDefinition : public ::testing::TestWithParam<std::tuple<Isa, std::string>> {};

TEST_P(TopKByDefinition, HoldsForEveryShapeDensityAndPool) {
  const auto& [isa, data] = GetParam();
  const ScopedIsa scope(isa);
  const auto topk = MakeSparsifier("topk");
  for (const std::size_t n :
       {std::size_t{1}, std::size_t{2}, std::size_t{31}, std::size_t{32}, std::size_t{33},
        std::size_t{1023}, std::size_t{1025}, std::size_t{8192}, std::size_t{8193},
        std::size_t{199'999}, kLargeShape}) {
    if (kSanitized && n == 199'999) continue;
    const auto x = MakeData(data, n, n);
    for (const double density : {1e-9, 0.001, 0.01, 0.3, 0.999, 1.0}) {
      if (n == kLargeShape && (density < 0.001 || density > 0.3)) continue;  // no new path, slow
      const Selected expected = LargestByDefinition(x, KeptCount(n, density));
      for (const int threads : {1, 2, 3}) {
        if (n < 200'000 && threads == 3) continue;  // one chunk: one thread
        for (const bool feedback : {false, true}) {
          Selection selection(*topk, n, density, threads, feedback);
          Selected sent = expected;
          for (float& v : sent.values)
            v += feedback ? 0.0f : -0.0f;  // -0 plus a residual of 0 is 0
          ASSERT_TRUE(Same(selection.Run(x, 0), sent))
              << "n=" << n << " density=" << density << " threads=" << threads;
          ASSERT_TRUE(selection.GuardsIntact());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TopKByDefinition,
                         ::testing::Combine(::testing::ValuesIn(SupportedIsas()),
                                            ::testing::ValuesIn(DataNames())),
                         NameOfTuple);

// Ties across the threshold, placed so that the cut falls inside a run of candidates.
TEST(TopKTies, AreCutByIndexWhereverTheyLie) {
  const auto topk = MakeSparsifier("topk");
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      constexpr std::size_t kN = 300'000;
      auto x = MakeData("gaussian", kN, seed);
      // The 2,000 to 4,000 largest become equal in magnitude: k = 3,000 cuts through them.
      const auto top = LargestByDefinition(x, 4000);
      const auto larger = LargestByDefinition(x, 2000);
      for (const std::uint32_t i : top.indices) x[i] = std::copysign(3.0f, x[i]);
      for (const std::uint32_t i : larger.indices) x[i] = std::copysign(5.0f + float(i % 7), x[i]);
      Selection selection(*topk, kN, 0.01, 1 + static_cast<int>(seed % 3), true);
      ASSERT_EQ(selection.Run(x, seed).indices, LargestByDefinition(x, 3000).indices) << seed;
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing

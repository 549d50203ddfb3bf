// Tests the fixed threshold: its rule, and what it sends where that gives nothing or too much.
#include <gtest/gtest.h>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

TEST(Threshold, SendsWhatExceedsTau) {
  for (const double tau : {0.0, 0.01, 0.5, 2.0}) {
    const auto threshold = MakeSparsifier("threshold", {{"tau", tau}});
    for (const char* data : {"gaussian", "few-values", "sparse", "layers"}) {
      for (const std::size_t n : {33, 9000, 300'007}) {
        const auto x = MakeData(data, n, 1);
        std::vector<std::uint32_t> expected;
        for (std::uint32_t i = 0; i < n; ++i) {
          if (std::abs(x[i]) > static_cast<float>(tau)) expected.push_back(i);
        }
        if (expected.empty()) continue;
        Selection selection(*threshold, n, 0.01, 2, false);
        EXPECT_EQ(selection.Run(x, 0).indices, expected) << data << " n=" << n << " tau=" << tau;
        EXPECT_EQ(selection.counters().overflows, 0u);
      }
    }
  }
}

TEST(Threshold, IsStrictAndTauIsOneHundredthByDefault) {
  const auto threshold = MakeSparsifier("threshold");
  const std::vector<float> x = {0.01f, -0.02f, 0.0f, std::nextafter(0.01f, 1.0f), -0.01f};
  Selection selection(*threshold, x.size(), 0.2, 1, false);
  EXPECT_EQ(selection.Run(x, 0).indices, (std::vector<std::uint32_t>{1, 3}));
}

TEST(Threshold, NeverSendsNothingOfSomething) {
  const auto threshold = MakeSparsifier("threshold", {{"tau", 10.0}});
  const auto x = MakeData("gaussian", 5000, 1);
  Selection selection(*threshold, x.size(), 0.01, 1, false);
  EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, 50).indices);
  EXPECT_EQ(selection.counters().fallbacks, 1u);
}

}  // namespace
}  // namespace sparfuse::testing

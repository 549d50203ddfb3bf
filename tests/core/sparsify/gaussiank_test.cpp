// Tests GaussianK: the estimate, its correction, and the paper's own corrections, written out.
#include <gtest/gtest.h>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

std::vector<std::uint32_t> Above(const std::vector<float>& x, double t) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    if (std::abs(static_cast<double>(x[i])) > t) indices.push_back(i);
  }
  return indices;
}

// mean + z * deviation. z: the normal quantile of 1 - density / 2.
double Estimate(const std::vector<float>& x, double z) {
  const auto n = static_cast<double>(x.size());
  double sum = 0;
  for (const float v : x) sum += v;
  const double mean = sum / n;
  double squares = 0;
  for (const float v : x) squares += (v - mean) * (v - mean);
  return mean + z * std::sqrt(squares / (n - 1));
}

struct Density {
  double density;
  double z;
};
constexpr Density kDensities[] = {{0.001, 3.2905267314919255},
                                  {0.01, 2.5758293035489004},
                                  {0.1, 1.6448536269514722},
                                  {0.5, 0.6744897501960817}};

// Calls expect(x, selected) for several steps with error feedback.
template <class Expect>
void ForSelections(const std::string& name, const Density& d, Expect expect) {
  const auto sparsifier = MakeSparsifier(name);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {2, 100, 9000, 200'003}) {
      // The large shape once: no new path, much time.
      if (n > 10'000 && (d.density != 0.01 || isa != SupportedIsas().back())) continue;
      for (const char* data : {"gaussian", "laplace", "layers", "ascending", "few-values"}) {
        Selection selection(*sparsifier, n, d.density, 2, true);
        for (std::uint64_t step = 0; step < 4; ++step) {
          const auto gradient = MakeData(data, n, static_cast<std::uint32_t>(step));
          std::vector<float> x = gradient;
          for (std::size_t i = 0; i < n; ++i) x[i] = gradient[i] + selection.residual()[i];
          SCOPED_TRACE(std::string(data) + " n=" + std::to_string(n) +
                       " density=" + std::to_string(d.density) + " step=" + std::to_string(step));
          expect(x, selection.Run(gradient, step).indices);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(GaussianK, KeepsTheEstimateWithinTwoPercentAndElseTheLargest) {
  int kept = 0;
  int corrected = 0;
  for (const Density& d : kDensities) {
    ForSelections("gaussiank", d, [&](const auto& x, const auto& selected) {
      const std::size_t k = KeptCount(x.size(), d.density);
      const auto estimated = Above(x, Estimate(x, d.z));
      const bool close = estimated.size() + k / 50 >= k && estimated.size() <= k + k / 50;
      EXPECT_EQ(selected, close ? estimated : LargestByDefinition(x, k).indices);
      ++(close ? kept : corrected);
    });
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(corrected, 20);
}

// Fewer than 2k/3 halve the threshold and more than 4k/3 raise it by half; three selections.
TEST(GaussianK, PaperFormTakesThreeSelectionsAtMost) {
  int halved = 0;
  int raised = 0;
  for (const Density& d : kDensities) {
    ForSelections("gaussiank@paper", d, [&](const auto& x, const auto& selected) {
      const auto k = static_cast<double>(KeptCount(x.size(), d.density));
      double t = Estimate(x, d.z);
      std::vector<std::uint32_t> mask;
      for (int i = 0; i < 3; ++i) {
        mask = Above(x, t);
        const auto count = static_cast<double>(mask.size());
        if (count < 2 * k / 3) {
          t *= 0.5;
          ++halved;
        } else if (count > 4 * k / 3) {
          t *= 1.5;
          ++raised;
        } else {
          break;
        }
      }
      if (mask.empty()) mask = LargestByDefinition(x, KeptCount(x.size(), d.density)).indices;
      EXPECT_EQ(selected, mask);
    });
  }
  EXPECT_GT(halved, 20);
  EXPECT_GT(raised, 20);
}

// {4, -4, 0, ..., 0} with 100 elements: mean 0, deviation sqrt(32 / 99) = 0.569. At density 0.02
// z = 2.326 and t = 1.32: the two are sent, as k = 2 asks.
TEST(GaussianK, SendsWhatTheEstimateSelects) {
  std::vector<float> x(100, 0.0f);
  x[17] = 4.0f;
  x[61] = -4.0f;
  for (const char* name : {"gaussiank", "gaussian", "gaussiank@paper"}) {
    const auto sparsifier = MakeSparsifier(name);
    Selection selection(*sparsifier, x.size(), 0.02, 1, false);
    EXPECT_EQ(selection.Run(x, 0).indices, (std::vector<std::uint32_t>{17, 61})) << name;
    EXPECT_EQ(selection.counters().fallbacks, 0u);
  }
}

// A mean far from zero puts the estimate above everything negative; the paper's form halves it
// until everything is above.
TEST(GaussianK, AShiftedMeanMisleadsThePaperFormOnly) {
  constexpr std::size_t kN = 20'000;
  auto x = MakeData("gaussian", kN, 1);
  for (float& v : x) v -= 40.0f;
  const auto canonical = MakeSparsifier("gaussiank");
  Selection corrected(*canonical, kN, 0.01, 1, false);
  EXPECT_EQ(corrected.Run(x, 0).indices, LargestByDefinition(x, 200).indices);
  const auto paper = MakeSparsifier("gaussiank@paper");
  Selection uncorrected(*paper, kN, 0.01, 1, false);
  EXPECT_EQ(uncorrected.Run(x, 0).indices.size(), kN);
}

}  // namespace
}  // namespace sparfuse::testing

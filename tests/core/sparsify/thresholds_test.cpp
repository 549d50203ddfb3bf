// Tests the sparsifiers that estimate a threshold, written out: GaussianK and its corrections,
// RedSync's trimmed search, and the fixed threshold. MSTopK is tested against its algorithm, which
// counts all of x in every iteration.
#include <gtest/gtest.h>

#include <limits>

#include "core/base/random_stream.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

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
void ForSelections(const std::string& name, const Density& d, auto expect) {
  const auto sparsifier = MakeSparsifier(name);
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {2, 100, 9000, 200'003}) {
      // The large shape runs once: no new path, and slow.
      if (n > 10'000 && (d.density != 0.01 || isa != SupportedIsas().back())) continue;
      for (const char* data : {"gaussian", "laplace", "layers", "ascending", "few-values"}) {
        Selection selection(*sparsifier, n, d.density, 2, true);
        for (std::uint64_t step = 0; step < 4; ++step) {
          const auto gradient = MakeData(data, n, step);
          const std::vector<float> x = selection.WithResidual(gradient);
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

// Fewer than 2k/3 elements halve the threshold, more than 4k/3 raise it by half; at most three
// selections.
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

// {4, -4, 0, ..., 0} with 100 elements: mean 0, deviation sqrt(32 / 99) = 0.569. At density 0.02, z
// = 2.326 and t = 1.32: both are sent, which is k = 2.
TEST(GaussianK, SendsWhatTheEstimateSelects) {
  std::vector<float> x(100, 0.0f);
  x[17] = 4.0f;
  x[61] = -4.0f;
  for (const char* name : {"gaussiank", "gaussian", "gaussiank@paper"}) {
    Selection selection(MakeSparsifier(name), x.size(), 0.02, 1, false);
    EXPECT_EQ(selection.Run(x, 0).indices, (std::vector<std::uint32_t>{17, 61})) << name;
    EXPECT_EQ(selection.counters().fallbacks, 0u);
  }
}

// A mean far from zero puts the estimate above all negative values; the paper's form halves it
// until every element is above.
TEST(GaussianK, AShiftedMeanMisleadsThePaperFormOnly) {
  constexpr std::size_t kN = 20'000;
  auto x = MakeData("gaussian", kN, 1);
  for (float& v : x) v -= 40.0f;
  Selection corrected(MakeSparsifier("gaussiank"), kN, 0.01, 1, false);
  EXPECT_EQ(corrected.Run(x, 0).indices, LargestByDefinition(x, 200).indices);
  Selection uncorrected(MakeSparsifier("gaussiank@paper"), kN, 0.01, 1, false);
  EXPECT_EQ(uncorrected.Run(x, 0).indices.size(), kN);
}

constexpr std::uint64_t kSeed = 11;
constexpr std::uint32_t kId = 7;

std::vector<std::uint32_t> MsTopKByDefinition(const std::vector<float>& x, std::size_t k,
                                              int iterations, std::uint64_t step) {
  std::vector<double> a(x.size());
  double sum = 0;
  double max = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    a[i] = std::abs(static_cast<double>(x[i]));
    sum += a[i];
    max = std::max(max, a[i]);
  }
  const double mean = sum / static_cast<double>(x.size());
  double low = 0;
  double high = 1;
  std::size_t fewer = 0;
  std::size_t more = x.size();
  double upper = std::numeric_limits<double>::infinity();
  double lower = 0;
  for (int i = 0; i < iterations; ++i) {
    const double r = (low + high) / 2;
    const double t = mean + r * (max - mean);
    const auto count = static_cast<std::size_t>(
        std::count_if(a.begin(), a.end(), [&](double v) { return v >= t; }));
    if (count <= k) {
      high = r;
      if (count > fewer) {
        fewer = count;
        upper = t;
      }
    } else {
      low = r;
      if (count < more) {
        more = count;
        lower = t;
      }
    }
  }
  std::vector<std::uint32_t> inside;
  std::vector<std::uint32_t> selected;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    if (a[i] >= upper) {
      selected.push_back(i);
    } else if (a[i] >= lower) {
      inside.push_back(i);
    }
  }
  const std::size_t wanted = k - selected.size();
  if (wanted > 0) {
    const std::size_t start = RandomStream(kSeed, kId, step).Below(inside.size(), 0);
    for (std::size_t j = 0; j < wanted; ++j) {
      selected.push_back(inside[(start + j) % inside.size()]);
    }
  }
  std::sort(selected.begin(), selected.end());
  return selected;
}

TEST(MsTopK, FollowsTheAlgorithm) {
  for (const std::int64_t iterations : {1, 3, 8, 30}) {
    const auto mstopk = MakeSparsifier("mstopk", {{"iterations", iterations}}, kSeed);
    for (const std::size_t n : {2, 33, 1025, 30'011}) {
      for (const double density : {0.001, 0.02, 0.4}) {
        for (const char* data :
             {"gaussian", "laplace", "layers", "few-values", "spike", "sparse"}) {
          Selection selection(*mstopk, n, density, 1, true);
          for (std::uint64_t step = 0; step < 4; ++step) {
            const auto gradient = MakeData(data, n, step);
            const std::vector<float> x = selection.WithResidual(gradient);
            ASSERT_EQ(
                selection.Run(gradient, step, kId).indices,
                MsTopKByDefinition(x, KeptCount(n, density), static_cast<int>(iterations), step))
                << data << " n=" << n << " density=" << density << " step=" << step
                << " iterations=" << iterations;
          }
        }
      }
    }
  }
}

// From 0.1 (mean) to 1 (max). Four elements reach the first middle, 0.55: one more than k. Two
// reach the second, 0.775. So 1 and 0.8 are sent, and one of 0.6 and 0.7.
TEST(MsTopK, FillsUpFromInsideTheBracket) {
  std::vector<float> x(31, 0.0f);
  x[3] = 0.7f;
  x[10] = -1.0f;
  x[20] = 0.6f;
  x[30] = -0.8f;
  Selection selection(MakeSparsifier("mstopk", {{"iterations", std::int64_t{2}}}, kSeed), 31, 0.1,
                      1, false);
  int first = 0;
  for (std::uint64_t step = 0; step < 64; ++step) {
    const auto indices = selection.Run(x, step).indices;
    ASSERT_EQ(indices.size(), 3u);
    const bool lower = indices[0] == 3;
    EXPECT_EQ(indices, lower ? (std::vector<std::uint32_t>{3, 10, 30})
                             : (std::vector<std::uint32_t>{10, 20, 30}));
    first += lower;
  }
  EXPECT_GT(first, 16);
  EXPECT_LT(first, 48);
}

TEST(MsTopK, ThirtyIterationsAreAnExactTopKOfDistinctValues) {
  constexpr std::size_t kN = 300'007;
  Selection selection(MakeSparsifier("mstopk"), kN, 0.01, 2, false);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto x = MakeData("ascending", kN, 0);
    EXPECT_EQ(selection.Run(x, step).indices, LargestByDefinition(x, 3000).indices);
  }
  EXPECT_EQ(selection.counters().fallbacks, 0u);
}

TEST(MsTopK, TooManyInTheBracketBecomeAnExactTopK) {
  constexpr std::size_t kN = 300'007;
  const std::vector<float> x(kN, 0.1f);
  Selection selection(MakeSparsifier("mstopk"), kN, 0.01, 2, false);
  EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, 3000).indices);
  EXPECT_EQ(selection.counters().fallbacks, 1u);
}

// 30 + k elements of many magnitudes among zeros, which are too many to collect. The algorithm is
// followed as long as the bracket lies above them. After three halvings the bracket holds more
// elements than are sent.
TEST(MsTopK, FollowsTheAlgorithmAboveACrowd) {
  constexpr std::size_t kN = 300'007;
  std::vector<float> x(kN, 0.0f);
  for (std::size_t i = 0; i < 3030; ++i) x[i * 97] = 1.0f + 0.001f * static_cast<float>(i % 2000);
  Selection selection(MakeSparsifier("mstopk", {{"iterations", std::int64_t{3}}}, kSeed), kN, 0.01,
                      2, false);
  EXPECT_EQ(selection.Run(x, 1, kId).indices, MsTopKByDefinition(x, 3000, 3, 1));
  EXPECT_EQ(selection.counters().fallbacks, 0u);
}

TEST(RedSync, SendsTheLargestOfTheTrimmedSet) {
  const auto redsync = MakeSparsifier("redsync");
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {2, 33, 9000, 300'007}) {
      for (const double density : {0.001, 0.01, 0.3}) {
        if (n > 10'000 && density != 0.01) continue;  // no new path, slow
        Selection selection(*redsync, n, density, 2, true);
        for (std::uint64_t step = 0; step < 5; ++step) {
          const auto gradient = MakeData(data, n, step);
          const std::vector<float> x = selection.WithResidual(gradient);
          ASSERT_EQ(selection.Run(gradient, step).indices,
                    LargestByDefinition(x, KeptCount(n, density)).indices)
              << data << " n=" << n << " density=" << density << " step=" << step;
        }
      }
    }
  }
}

// With mean M and maximum X, trims at the first M + r (X - M), r = 0.8, 0.6, ..., that k elements
// exceed.
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
  // One outlier above a constant: one element exceeds the mean, but k is 100.
  constant[777] = 1e6f;
  Selection outlier(*redsync, kN, 0.01, 1, false);
  EXPECT_EQ(outlier.Run(constant, 0).indices, LargestByDefinition(constant, 100).indices);
  EXPECT_EQ(outlier.counters().fallbacks, 1u);
}

TEST(Threshold, SendsWhatExceedsTau) {
  for (const double tau : {0.0, 0.01, 0.5, 2.0}) {
    const auto threshold = MakeSparsifier("threshold", {{"tau", tau}});
    for (const char* data : {"gaussian", "few-values", "sparse", "layers"}) {
      for (const std::size_t n : {33, 9000, 300'007}) {
        const auto x = MakeData(data, n, 1);
        const auto expected = Above(x, static_cast<float>(tau));
        if (expected.empty()) continue;
        Selection selection(*threshold, n, 0.01, 2, false);
        EXPECT_EQ(selection.Run(x, 0).indices, expected) << data << " n=" << n << " tau=" << tau;
        EXPECT_EQ(selection.counters().overflows, 0u);
      }
    }
  }
}

TEST(Threshold, IsStrictAndTauIsOneHundredthByDefault) {
  const std::vector<float> x = {0.01f, -0.02f, 0.0f, std::nextafter(0.01f, 1.0f), -0.01f};
  Selection selection(MakeSparsifier("threshold"), x.size(), 0.2, 1, false);
  EXPECT_EQ(selection.Run(x, 0).indices, (std::vector<std::uint32_t>{1, 3}));
}

TEST(Threshold, NeverSendsNothingOfSomething) {
  const auto x = MakeData("gaussian", 5000, 1);
  Selection selection(MakeSparsifier("threshold", {{"tau", 10.0}}), x.size(), 0.01, 1, false);
  EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, 50).indices);
  EXPECT_EQ(selection.counters().fallbacks, 1u);
}

}  // namespace
}  // namespace sparfuse::testing

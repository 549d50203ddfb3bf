// Tests the published forms: small cases worked by hand, their known counts, and their descriptors.
#include "core/sparsify/published/published.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

struct Result {
  Selected selected;
  SelectCounters counters;
};

Result Select(const std::string& name, const std::vector<float>& x, double density,
              const Options& options = {}, std::uint64_t step = 0) {
  Selection selection(MakeSparsifier(name, options), x.size(), density, 1, false);
  Result result{selection.Run(x, step), {}};
  result.counters = selection.counters();
  return result;
}

std::size_t Count(const std::string& name, const std::vector<float>& x, double density,
                  const Options& options = {}, std::uint64_t step = 0) {
  return Select(name, x, density, options, step).selected.indices.size();
}

// Magnitudes 1, 2, ..., n of both signs. The mean is 0 for even n, and the deviation follows from a
// sum of squares. n - ceil(t) + 1 elements reach a threshold t.
std::vector<float> Ramp(int n) {
  std::vector<float> x;
  for (int i = 1; i <= n / 2; ++i) {
    x.push_back(static_cast<float>(i));
    x.push_back(static_cast<float>(-i));
  }
  return x;
}

// ---- Gaussian-K

// 100 elements +-1 ... +-50: squares sum to 2 * 42925, so the deviation is sqrt(85850 / 99) =
// 29.4478. At density 0.4 z = 0.841621: the threshold is 24.7839, k = 40, 52 are above it. At
// density 0.1 z = 1.644854: 48.4373, k = 10, 4 elements (49 and 50 of both signs).
constexpr int kRamp = 100;

TEST(Published, GaussianSsfSendsWhatReachesTheNormalQuantile) {
  EXPECT_EQ(Count("gaussiank@ssf", Ramp(kRamp), 0.4), 52u);
  EXPECT_EQ(Count("gaussiank@ssf", Ramp(kRamp), 0.1), 4u);
}

// Density 0.4: 52 > 48 -> 29.741, 42; below 0.8 * 100 * 40, so down -> 23.793, 54 -> 28.551, 44 ->
// 22.841, 56 -> 27.409: 46 are left (28 ... 50). With the intended bound it would stop at 42.
TEST(Published, GaussianSafNeverComesToRest) {
  EXPECT_EQ(Count("gaussiank@saf", Ramp(kRamp), 0.4), 46u);
}

// Density 0.1: 4 < floor(7.5): 48.4373 / 1.02 = 47.488, 6; / 1.02 = 46.556, 8 (47 ... 50): stop.
// Steps of 1.2 %: 47.863, 6; 47.295, 6; 46.735, 8: stop at 3k/4 (LSTM). BERT goes on to
// floor(50 / 6) = 8: the same. Density 0.4: 52 > 50, up: 25.280, 50: stop.
TEST(Published, GaussianOkTopkMovesInOneDirection) {
  EXPECT_EQ(Count("gaussiank@oktopk", Ramp(kRamp), 0.1), 8u);
  EXPECT_EQ(Count("gaussiank@oktopk-lstm", Ramp(kRamp), 0.1), 8u);
  EXPECT_EQ(Count("gaussiank@oktopk-bert", Ramp(kRamp), 0.1), 8u);
  EXPECT_EQ(Count("gaussiank@oktopk", Ramp(kRamp), 0.4), 50u);
  EXPECT_EQ(Count("gaussiank@oktopk-lstm", Ramp(kRamp), 0.4), 52u);
  EXPECT_EQ(Count("gaussiank@oktopk-bert", Ramp(kRamp), 0.4), 52u);
}

// Density 0.1, k = 10: 4 < 6.67 -> 24.219, 52 > 13.3 -> 36.328, 28 -> 54.49, 0 -> 27.246, 46: the
// fifth count ends the search.
TEST(Published, GaussianAdtopkSwings) {
  EXPECT_EQ(Count("gaussiank@adtopk", Ramp(kRamp), 0.1), 46u);
}

// |x| has mean 25.5 and variance (85850 - 65025) / 99 = 210.354. Density 0.1: 25.5 + 1.644854 *
// 14.5036 = 49.356: 2 (the 50s) < 6.67 -> 24.678, 52 -> 37.017, 26 (38 ... 50).
TEST(Published, GaussianSidcoFitsTheMagnitudes) {
  EXPECT_EQ(Count("gaussiank@sidco", Ramp(kRamp), 0.1), 26u);
}

// The deviation of equal elements is 0 and the threshold is their value.
TEST(Published, GaussianOfEqualElements) {
  const std::vector<float> x(1000, 0.1f);
  EXPECT_EQ(Count("gaussiank@ssf", x, 0.01), 1000u);
  // All, none, all, none, all, none: an empty selection becomes an exact top-k.
  const Result saf = Select("gaussiank@saf", x, 0.01);
  EXPECT_EQ(saf.selected.indices, LargestByDefinition(x, 10).indices);
  EXPECT_EQ(saf.counters.fallbacks, 1u);
  // None are above the threshold, one step down all are; with k = 1 no step is taken.
  EXPECT_EQ(Count("gaussiank@oktopk", x, 0.01), 1000u);
  EXPECT_EQ(Count("gaussiank@oktopk", x, 0.001), 1u);
}

// ---- DGC

// All k = 4,000 samples count, so that the threshold is the smallest of them. All but about
// n / k = 10 of distinct values reach it. Of a uniform distribution, all but some 17 reach 1.69
// times the threshold.
TEST(Published, DgcWfbpSendsNearlyEverything) {
  std::vector<float> x(40'000);
  std::iota(x.begin(), x.end(), 1.0f);
  const std::size_t count = Count("dgc@wfbp", x, 0.1);
  EXPECT_GT(count, 39'700u);
  EXPECT_LT(count, 40'000u);
}

// Half the elements are 1, half 0.5; k = 0.25 n. Any sample of hundreds has a 1 at its 25 % place:
// n / 2 = 2 k elements reach it. 2 > 1.3: none reach 1.3, and n / 2 reach 0.91 again.
// Ten corrections: 1.3, 0.91, 1.183, 0.8281, 1.0765, 0.7536, 0.9796, 1.2735, 0.8915, 1.1589: none.
// Two: 0.91.
// By 1.2 and 0.8: 1.2, 0.96, 1.152, 0.9216, 1.1059, 0.8847, 1.0617, 0.8493, 1.0192, 0.8153: the
// half.
TEST(Published, DgcCorrectionsAlternate) {
  std::vector<float> x(8000, 0.5f);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -1;
  const Result grace = Select("dgc@grace", x, 0.25);
  EXPECT_EQ(grace.counters.fallbacks, 1u);
  EXPECT_EQ(grace.selected.indices, LargestByDefinition(x, 2000).indices);
  EXPECT_EQ(Count("dgc@adtopk", x, 0.25), 4000u);
  EXPECT_EQ(Count("dgc@saf", x, 0.25), 4000u);
  EXPECT_EQ(Count("dgc@ssf", x, 0.25), 4000u);
}

// No element exceeds the largest value, and every sample contains some of that value.
TEST(Published, DgcSidcoComparesStrictlyAndTrims) {
  std::vector<float> x(8000, 0.5f);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -1;
  EXPECT_EQ(Select("dgc@sidco", x, 0.25).counters.fallbacks, 1u);
  // The 75 % place is a 0.5, and the 1s exceed it: 4000 of k = 6000, which no correction changes.
  EXPECT_EQ(Count("dgc@sidco", x, 0.75), 4000u);
  // Too many never stay: above 4k/3, the k = ceil(n * density) largest are taken.
  const auto y = MakeData("gaussian", 50'000, 1);
  int trimmed = 0;
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Selected selected = Select("dgc@sidco", y, 0.0101, {}, step).selected;
    ASSERT_LE(3 * selected.indices.size(), 4u * 505);
    ASSERT_EQ(selected.indices, LargestByDefinition(y, selected.indices.size()).indices);
    trimmed += selected.indices.size() == 505;
  }
  EXPECT_GT(trimmed, 3);
}

TEST(Published, DgcPoolIsExactForSmallTensors) {
  const auto x = MakeData("gaussian", 16'383, 1);
  EXPECT_EQ(Select("dgc@pool", x, 0.01).selected.indices, LargestByDefinition(x, 164).indices);
}

// From 16,384 elements on it sends the first k that reach its threshold, or k random ones.
TEST(Published, DgcPoolTruncatesByPositionOrDraws) {
  const auto x = MakeData("gaussian", 16'384 * 3, 1);
  const std::size_t k = KeptCount(x.size(), 0.01);
  int truncated = 0;
  int drawn = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    const Selected selected = Select("dgc@pool", x, 0.01, {}, step).selected;
    const float smallest = SmallestMagnitude(selected.values);
    if (smallest < 0.5f) {  // a threshold never falls below 0.5
      ++drawn;
      EXPECT_LE(selected.indices.size(), k);
      EXPECT_GT(selected.indices.size(), k - 20);
      continue;
    }
    ++truncated;
    ASSERT_EQ(selected.indices.size(), k);
    // No element as large was skipped before the last index.
    std::size_t reach = 0;
    for (std::size_t i = 0; i <= selected.indices.back(); ++i) reach += std::abs(x[i]) >= smallest;
    EXPECT_EQ(reach, k);
  }
  EXPECT_GT(truncated, 10);
  EXPECT_GT(drawn, 10);
}

// ---- RedSync

// Magnitudes 1 ... 50 twice: mean 25.5, maximum 50.
// k = 40: 26 reach the middle, 37.75, which is more than k / 2: up. 14 reach 43.875, 0.75 of the
// way, which is less than k / 2: down. 20 reach 40.8125, 0.625 of the way: the search stops, though
// a lower threshold would have been nearer.
// k = 20: 26 reach 37.75, between k and 2k: stop.
TEST(Published, RedSyncSearchesThreeTimes) {
  EXPECT_EQ(Count("redsync@saf", Ramp(kRamp), 0.4), 20u);
  EXPECT_EQ(Count("redsync@saf", Ramp(kRamp), 0.2), 26u);
  EXPECT_EQ(Count("redsync@ssf", Ramp(kRamp), 0.2), 26u);
}

// k = 20: 10 reach 45.1, 0.8 of the way; 20 reach 40.2: stop. k = 60: 35.3 30, 30.4 40, 25.5 50,
// 20.6 60: stop. k = 95: 15.7 70, 10.8 80, 5.9 90, 1.0 98: stop.
TEST(Published, RedSyncTrimmedStepsDown) {
  EXPECT_EQ(Count("redsynctrim@sidco", Ramp(kRamp), 0.2), 20u);
  EXPECT_EQ(Count("redsynctrim@sidco", Ramp(kRamp), 0.21), 30u);
  EXPECT_EQ(Count("redsynctrim@sidco", Ramp(kRamp), 0.6), 60u);
  EXPECT_EQ(Count("redsynctrim@sidco", Ramp(kRamp), 0.95), 98u);
}

TEST(Published, RedSyncOfEqualElementsEnds) {
  const std::vector<float> x(1000, -0.3f);
  for (const char* name : {"redsync@saf", "redsynctrim@sidco"}) {
    const Result result = Select(name, x, 0.01);
    EXPECT_EQ(result.selected.indices, LargestByDefinition(x, 10).indices) << name;
    EXPECT_EQ(result.counters.fallbacks, 1u) << name;
  }
}

// ---- SIDCo

// Magnitudes 1 ... 50 twice, mean 25.5. Density 0.2: -25.5 ln 0.2 = 41.04: 18 are above it.
// Pareto: variance 210.354, q = 650.25 / 210.354 = 3.0912, shape 1.0456, scale 52.163: 49.888 *
// (1 - 0.2^1.0456) = 40.617: 20.
TEST(Published, SidcoOneStage) {
  EXPECT_EQ(Count("sidco@saf", Ramp(kRamp), 0.2), 18u);
  EXPECT_EQ(Count("sidco@repo", Ramp(kRamp), 0.2), 18u);
  EXPECT_EQ(Count("sidco@saf", Ramp(kRamp), 0.2, {{"fit", "pareto"}}), 20u);
  // Normal: 25.5 + 1.281552 * 14.5036 = 44.087: 12.
  EXPECT_EQ(Count("sidco@repo", Ramp(kRamp), 0.2, {{"fit", "normal"}}), 12u);
}

// Two stages at 0.1: the first aims at 0.25, -25.5 ln 0.25 = 35.351: 36 ... 50, 30 elements, the
// smallest 36, their mean 43. The second at 0.1 / 0.25 = 0.4: 36 - 7 ln 0.4 = 42.414: 16. Three
// stages: ratios sqrt(0.4): 36 - 7 * -0.458145 = 39.207: 40 ... 50, mean 45: 40 + 5 * 0.458145 =
// 42.291: 16. At 0.02, k = 2: stages of 0.25 leave 35.351, then 36 + 7 ln 4 = 45.704: 46 ... 50,
// mean 48; the rest is 0.02 / 0.25 / 0.25 = 0.32: 46 - 2 ln 0.32 = 48.279: 4.
TEST(Published, SidcoLaterStages) {
  EXPECT_EQ(Count("sidco@repo", Ramp(kRamp), 0.1, {{"stages", std::int64_t{2}}}), 16u);
  EXPECT_EQ(Count("sidco@repo", Ramp(kRamp), 0.1, {{"stages", std::int64_t{3}}}), 16u);
  EXPECT_EQ(Count("sidco@repo", Ramp(kRamp), 0.02, {{"stages", std::int64_t{0}}}), 4u);
  // With stages of 0.1 there are two as well: 36 + 7 ln 10 = 52.1 leaves no elements to the second.
  EXPECT_EQ(
      Select("sidco@repo", Ramp(kRamp), 0.02, {{"stages", std::int64_t{0}}, {"stage_density", 0.1}})
          .counters.fallbacks,
      1u);
  // At a density above the first stage's 0.25, the automatic number of stages is one.
  EXPECT_EQ(Count("sidco@repo", Ramp(kRamp), 0.4, {{"stages", std::int64_t{0}}}),
            Count("sidco@repo", Ramp(kRamp), 0.4));
}

// On data of its own distribution, each fit finds its density: 100,000 quantiles instead of draws.
TEST(Published, SidcoFitsFindTheDensityOfTheirOwnData) {
  constexpr std::size_t kN = 100'000;
  const auto quantiles = [](auto inverse) {
    std::vector<float> x(kN);
    for (std::size_t i = 0; i < kN; ++i) {
      x[i] = static_cast<float>(inverse((static_cast<double>(i) + 0.5) / kN)) * (i % 2 ? 1 : -1);
    }
    return x;
  };
  const auto exponential = quantiles([](double p) { return -std::log(p); });
  // Survival (1 + x / 10)^-10: shape 0.1, scale 1.
  const auto pareto = quantiles([](double p) { return 10 * (std::pow(p, -0.1) - 1); });
  for (const double density : {0.1, 0.01, 0.001}) {
    const auto within = [&](const std::vector<float>& x, const Options& options, double band) {
      EXPECT_NEAR(static_cast<double>(Count("sidco@repo", x, density, options)), density * kN,
                  band * density * kN)
          << density << " " << ToString(options.at("fit"));
    };
    within(exponential, {{"fit", "exponential"}}, 0.01);
    within(exponential, {{"fit", "exponential"}, {"stages", std::int64_t{2}}}, 0.01);
    within(exponential, {{"fit", "pareto"}}, 0.01);
    // Shape 1, which the estimate misses by 1.5 %.
    within(exponential, {{"fit", "gamma"}}, 0.08);
    within(exponential, {{"fit", "gamma"}, {"approximate_gamma", true}}, 0.08);
    within(pareto, {{"fit", "pareto"}}, 0.03);
  }
}

// A gamma distribution of shape 2: survival (1 + x) exp(-x). Its estimate in closed form is within
// 1.5 % of the shape. The asymptotic quantile of x is -ln(density) - ln Gamma(2) = -ln(density),
// without the 1 + x. At 0.01 it is 4.605 instead of 6.638, and 5.6 % exceed it.
TEST(Published, SidcoGammaQuantiles) {
  constexpr std::size_t kN = 100'000;
  std::vector<float> x(kN);
  double at = 0;
  for (std::size_t i = 0; i < kN; ++i) {  // the survival falls by 1 / n each time
    const double survival = 1 - (static_cast<double>(i) + 0.5) / kN;
    for (int newton = 0; newton < 50; ++newton) {
      const double error = std::log1p(at) - at - std::log(survival);
      at += error * (1 + at) / std::max(at, 1e-3);
    }
    x[i] = static_cast<float>(at);
  }
  EXPECT_NEAR(static_cast<double>(Count("sidco@repo", x, 0.01, {{"fit", "gamma"}})), 1000, 60);
  EXPECT_NEAR(static_cast<double>(
                  Count("sidco@repo", x, 0.01, {{"fit", "gamma"}, {"approximate_gamma", true}})),
              5600, 300);
}

TEST(Published, SidcoWithoutASpreadFallsBack) {
  const std::vector<float> x(1000, -0.3f);
  for (const char* fit : {"exponential", "pareto", "gamma", "normal"}) {
    for (const int stages : {1, 2, 0, -1}) {
      const Result result =
          Select("sidco@repo", x, 0.01, {{"fit", fit}, {"stages", std::int64_t{stages}}});
      EXPECT_EQ(result.selected.indices, LargestByDefinition(x, 10).indices) << fit << stages;
      EXPECT_EQ(result.counters.fallbacks, 1u) << fit << stages;
    }
  }
}

// One stage sends far too few elements of Gaussian data. The mean of five selections adds a stage,
// for all tensors that follow.
TEST(Published, SidcoAdaptsTheStagesOfAllTensorsTogether) {
  const auto x = MakeData("gaussian", 50'000, 1);
  const auto adapted = MakeSparsifier("sidco@repo", {{"stages", std::int64_t{-1}}});
  Selection one(*adapted, x.size(), 0.01, 1, false);
  Selection other(*adapted, x.size(), 0.01, 1, false);
  for (std::uint64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(one.Run(x, step).indices.size(), Count("sidco@repo", x, 0.01)) << step;
  }
  EXPECT_EQ(other.Run(x, 5).indices.size(),
            Count("sidco@repo", x, 0.01, {{"stages", std::int64_t{2}}}));
  // On t-distributed data with very heavy tails, more stages send less, and modes -2 and -3
  // reverse.
  for (const std::int64_t mode : {-1, -2, -3}) {
    Selection selection(MakeSparsifier("sidco@repo", {{"stages", mode}}), x.size(), 0.01, 1, false);
    std::size_t count = 0;
    for (std::uint64_t step = 0; step < 100; ++step) count = selection.Run(x, step).indices.size();
    EXPECT_NEAR(static_cast<double>(count), 500, 250) << mode;
  }
}

// ---- Thresholds and random positions

TEST(Published, ThresholdWfbpLeavesTheKth) {
  EXPECT_EQ(Select("threshold@wfbp", {4, -3, 2, 1, 5}, 0.6).selected.indices,
            (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(Select("threshold@wfbp", {3, -3, 2, 1, 5}, 0.6).selected.indices,
            (std::vector<std::uint32_t>{4}));
  // k = 1: no element exceeds the largest.
  const Result one = Select("threshold@wfbp", {4, -3, 2, 1, 5}, 0.2);
  EXPECT_EQ(one.selected.indices, (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(one.counters.fallbacks, 1u);
}

TEST(Published, ThresholdGraceDistIsNeverAboveTheLargestBySign) {
  const std::vector<float> x = {0.02f, -0.5f, 0.004f, 0.01f, -0.009f};
  EXPECT_EQ(Select("threshold@grace-dist", x, 0.2).selected.indices,
            (std::vector<std::uint32_t>{0, 1, 3}));
  EXPECT_EQ(Select("threshold@grace-dist", x, 0.2, {{"tau", 0.3}}).selected.indices,
            (std::vector<std::uint32_t>{0, 1}));  // reaches 0.02
  EXPECT_EQ(Count("threshold@grace-dist", {-0.02f, -0.5f, -0.004f, -1}, 0.25, {{"tau", 0.3}}), 4u);
}

TEST(Published, RandomKFollowsTheBytesOfTheName) {
  const auto sparsifier = MakeSparsifier("randomk@saf");
  const std::vector<float> x(1000, 1.0f);
  const auto select = [&](std::string_view name, std::uint64_t step) {
    SelectCounters counters;
    return SelectInto(*sparsifier, x, 0.01, {0, name, {}, step}, 10, counters).indices;
  };
  EXPECT_EQ(select("ab", 3), select("ba", 3));
  EXPECT_EQ(select("ab", 3), select("aa", 4));
  EXPECT_NE(select("ab", 3), select("ab", 4));
}

// k draws with replacement from n repeat about k^2 / 2n times: 10,000 * 0.1 / 2, less a few that
// were drawn more than twice. n (1 - exp(-0.1)) = 9,516 differ.
TEST(Published, RandomKWithReplacementCollapses) {
  const std::vector<float> x(100'000, 1.0f);
  double sum = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    sum += static_cast<double>(Count("randomk@grace-dist", x, 0.1, {}, step));
  }
  EXPECT_NEAR(sum / 100, 9516, 10);
}

// ---- Known counts at density 0.01, n = 65,536

struct Known {
  const char* name;
  double gaussian;
  double laplace;
  double student;  // with 3 degrees of freedom
  double band;     // relative
};

std::vector<float> Student(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::student_t_distribution<double> student(3);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(student(random));
  return x;
}

TEST(Published, DeliverTheDensitiesTheyAreKnownFor) {
  constexpr std::size_t kN = 65'536;
  const auto k = static_cast<double>(KeptCount(kN, 0.01));
  for (const Known& known : {Known{"gaussiank@saf", 0.45, 1.77, 1.6, 0.15},
                             {"gaussiank@ssf", 1.03, 2.62, 2.1, 0.15},
                             {"gaussiank@oktopk", 1.03, 1.18, 1.2, 0.08},
                             {"gaussiank@oktopk-lstm", 1.03, 2.62, 2.1, 0.15},
                             {"gaussiank@oktopk-bert", 1.03, 2.62, 2.1, 0.15},
                             {"sidco@saf", 0.023, 1.0, 1.5, 0.6},
                             {"threshold@wfbp", 0.998, 0.998, 0.998, 0.001},
                             {"dgc@wfbp", 99.8, 99.8, 99.8, 0.005}}) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
      const auto ratio = [&](const std::vector<float>& x) {
        return static_cast<double>(Count(known.name, x, 0.01)) / k;
      };
      EXPECT_NEAR(ratio(MakeData("gaussian", kN, seed)) / known.gaussian, 1, known.band)
          << known.name;
      EXPECT_NEAR(ratio(MakeData("laplace", kN, seed)) / known.laplace, 1, known.band)
          << known.name;
      EXPECT_NEAR(ratio(Student(kN, seed)) / known.student, 1, known.band) << known.name;
    }
  }
}

// The mean and deviation of count / k, and the mean share of the k largest that is selected, over
// 100 seeds on one Gaussian tensor. Standard errors are a tenth of the deviation.
TEST(Published, SamplesSpreadAsTheyAreKnownTo) {
  constexpr std::size_t kN = 65'536;
  constexpr int kSeeds = 100;
  const auto x = MakeData("gaussian", kN, 2);
  const std::size_t k = KeptCount(kN, 0.01);
  const auto largest = LargestByDefinition(x, k).indices;
  struct Band {
    const char* name;
    double mean;
    double deviation;
    double recall;
  };
  for (const Band& band : {Band{"dgc@grace", 0.96, 0.17, 0.90},
                           {"dgc@adtopk", 1.3, 0.68, 0.93},
                           {"dgc@saf", 1.3, 0.68, 0.93},
                           {"dgc@ssf", 0.96, 0.10, 0.935},
                           {"dgc@wfbp", 99.8, 0.2, 1.0},
                           {"dgc@sidco", 0.93, 0.22, 0.88},
                           {"dgc@pool", 0.9985, 0.003, 0.42}}) {
    Selection selection(MakeSparsifier(band.name), kN, 0.01, 1, false);
    Spread spread;
    double recall = 0;
    for (std::uint64_t step = 0; step < kSeeds; ++step) {
      const auto indices = selection.Run(x, step).indices;
      spread.Add(static_cast<double>(indices.size()) / static_cast<double>(k));
      std::vector<std::uint32_t> both;
      std::set_intersection(indices.begin(), indices.end(), largest.begin(), largest.end(),
                            std::back_inserter(both));
      recall += static_cast<double>(both.size()) / static_cast<double>(k);
    }
    EXPECT_NEAR(spread.mean(), band.mean, 0.4 * band.deviation) << band.name;
    EXPECT_NEAR(spread.sigma() / band.deviation, 1, 0.4) << band.name;
    EXPECT_NEAR(recall / kSeeds, band.recall, band.recall < 0.5 ? 0.12 : 0.04) << band.name;
  }
}

// ---- Slots and descriptors

std::vector<SparsifierDescriptor> Forms() { return AndPublished({}); }

TEST(Published, OverflowOfASmallSlotBecomesExactTopK) {
  const auto x = MakeData("gaussian", 50'000, 1);
  const auto sparsifier = MakeSparsifier("dgc@wfbp");
  SelectCounters counters;
  const Selected selected =
      SelectInto(*sparsifier, x, 0.01, {0, "fc", {}, 0}, SlotCapacity(x.size(), 0.01), counters);
  EXPECT_EQ(selected.indices, LargestByDefinition(x, 500).indices);
  EXPECT_EQ(counters.overflows, 1u);
}

TEST(Published, NamesTellTheOrigin) {
  for (const SparsifierDescriptor& form : Forms()) {
    EXPECT_NE(form.name.find('@'), std::string_view::npos) << form.name;
    EXPECT_NE(form.deviations, "") << form.name;
    EXPECT_EQ(SlotCapacityFor(form, 100'000, 0.01), form.unbounded_count ? 100'000u : 4000u);
    for (const std::string_view alias : form.aliases) {
      EXPECT_EQ(FindSparsifier(alias).name, form.name);
    }
  }
}

// Every form sends at least one element of a one-element tensor and of a constant tensor.
TEST(Published, NeverSendNothing) {
  for (const SparsifierDescriptor& form : Forms()) {
    const std::string name(form.name);
    EXPECT_EQ(Count(name, {-2.5f}, 0.01), 1u) << name;
    EXPECT_GE(Count(name, std::vector<float>(777, -1e-30f), 0.01), 1u) << name;
    for (const char* data : {"denormal", "spike", "few-values", "sparse"}) {
      EXPECT_GE(Count(name, MakeData(data, 20'000, 1), 0.001), 1u) << name << " " << data;
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing

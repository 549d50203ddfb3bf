// Tests SIDCo: every fit and stage written out, the adaptation of the stages, and the correction.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

const std::vector<std::string> kFits = {"exponential", "pareto", "gamma"};

std::vector<double> Magnitudes(const std::vector<float>& x) {
  std::vector<double> a;
  for (const float v : x) a.push_back(std::abs(static_cast<double>(v)));
  return a;
}

double Mean(const std::vector<double>& a) {
  return std::accumulate(a.begin(), a.end(), 0.0) / static_cast<double>(a.size());
}

double ExponentialThreshold(const std::vector<double>& a, double ratio) {
  return -Mean(a) * std::log(ratio);
}

// t = A (1 - exp(K ln ratio)) / K with K = (q - 1) / 2, A = mean (q + 1) / 2, q = mean^2 /
// variance.
double ParetoThreshold(const std::vector<double>& a, double ratio) {
  const double mean = Mean(a);
  double squares = 0;
  for (const double v : a) squares += (v - mean) * (v - mean);
  const double q = mean * mean / (squares / static_cast<double>(a.size() - 1));
  const double shape = (q - 1) / 2;
  return mean * (q + 1) / 2 * (1 - std::exp(shape * std::log(ratio))) / shape;
}

double GammaThreshold(const std::vector<double>& a, double ratio) {
  double norm = 0;
  for (const double v : a) norm += v * v;
  double logs = 0;
  for (const double v : a) {
    logs += std::log(v == 0 ? std::numeric_limits<double>::epsilon() * std::sqrt(norm) : v);
  }
  const double s = std::log(Mean(a)) - logs / static_cast<double>(a.size());
  const double shape = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  return -Mean(a) / shape * (std::log(ratio) + std::lgamma(shape));
}

double FirstThreshold(const std::string& fit, const std::vector<double>& a, double ratio) {
  if (fit == "exponential") return ExponentialThreshold(a, ratio);
  return fit == "pareto" ? ParetoThreshold(a, ratio) : GammaThreshold(a, ratio);
}

// The threshold that a share `ratio` of the elements above t should exceed. All magnitudes exceed a
// negative t, and then start at zero.
double NextThreshold(const std::string& fit, const std::vector<double>& a, double t, double ratio) {
  if (t < 0) return FirstThreshold(fit == "gamma" ? "pareto" : fit, a, ratio);
  std::vector<double> excess;
  for (const double v : a) {
    if (v > t) excess.push_back(v - t);
  }
  if (excess.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  return t + (fit == "exponential" ? ExponentialThreshold(excess, ratio)
                                   : ParetoThreshold(excess, ratio));
}

Options Fixed(const std::string& fit, std::int64_t stages) {
  return {{"fit", fit}, {"stages", stages}, {"adaptive", false}};
}

// Densities fall from 1/4 (or the target, if that is larger) to the target by a constant factor.
TEST(Sidco, PaperFormFitsStageUponStage) {
  for (const std::string& fit : kFits) {
    for (const std::int64_t stages : {1, 2, 3, 5}) {
      const auto sidco = MakeSparsifier("sidco@paper", Fixed(fit, stages));
      for (const double density : {0.001, 0.01, 0.1, 0.4}) {
        for (const char* data : {"gaussian", "laplace", "layers", "sparse"}) {
          constexpr std::size_t kN = 50'021;
          const auto x = MakeData(data, kN, 3);
          const auto a = Magnitudes(x);
          const std::int64_t count = density >= 0.25 ? 1 : stages;
          double t = FirstThreshold(fit, a, count == 1 ? density : 0.25);
          for (std::int64_t stage = 1; stage < count; ++stage) {
            t = NextThreshold(fit, a, t,
                              std::pow(density / 0.25, 1.0 / static_cast<double>(count - 1)));
          }
          auto expected = std::isnan(t) ? std::vector<std::uint32_t>{} : Above(x, t);
          if (expected.empty()) expected = LargestByDefinition(x, KeptCount(kN, density)).indices;
          Selection selection(*sidco, kN, density, 2, false);
          const auto selected = selection.Run(x, 0).indices;
          // The threshold agrees to 1e-6, so that one element in a million may lie between.
          std::vector<std::uint32_t> difference;
          std::set_symmetric_difference(selected.begin(), selected.end(), expected.begin(),
                                        expected.end(), std::back_inserter(difference));
          EXPECT_LE(difference.size(), 1u)
              << fit << " stages=" << stages << " " << data << " density=" << density << " sent "
              << selected.size() << " expected " << expected.size();
        }
      }
    }
  }
}

// Magnitudes 1, 2, 3 and 6 have mean 3: a quarter of an exponential distribution with that mean
// exceeds 3 ln 4 = 4.16. (Density 0.3 of four elements is k = 1.)
TEST(Sidco, SingleStageIsTheMeanTimesTheLogarithm) {
  const std::vector<float> x = {1, -6, 3, -2};
  for (const char* name : {"sidco", "sidco-exp", "sidco@paper"}) {
    Selection selection(MakeSparsifier(name), x.size(), 0.25, 1, false);
    EXPECT_EQ(selection.Run(x, 0).indices, (std::vector<std::uint32_t>{1})) << name;
  }
}

// The first step's stages of a large tensor come from a sample. The count is still close to k, the
// largest elements are sent, and the result is exact if a sample shows nothing.
TEST(Sidco, TakesFirstStagesOfALargeTensorFromASample) {
  constexpr std::size_t kN = 300'000;
  constexpr std::size_t kK = 3000;
  for (const std::string& fit : kFits) {
    for (const bool feedback : {false, true}) {
      const auto sidco = MakeSparsifier("sidco", Fixed(fit, 3));
      Selection selection(*sidco, kN, 0.01, 2, feedback);
      const auto x = MakeData("laplace", kN, 3);
      const std::size_t count = selection.Run(x, 0).indices.size();
      EXPECT_LE(count, kK + kK / 50) << fit;
      EXPECT_GE(count, kK - kK / 50) << fit;
      Selection again(*sidco, kN, 0.01, 2, feedback);
      EXPECT_EQ(again.Run(x, 0).indices, LargestByDefinition(x, count).indices) << fit;
      Selection spike(*sidco, kN, 0.01, 1, feedback);
      const auto sent = spike.Run(MakeData("spike", kN, 1), 0).indices;
      EXPECT_TRUE(std::binary_search(sent.begin(), sent.end(), kN / 2)) << fit;
      ExpectError(FailureKind::kNumeric, {"element 0 of 300000"}, [&] {
        Selection bad(*sidco, kN, 0.01, 1, feedback);
        bad.Run(std::vector<float>(kN, kNan), 0);
      });
    }
  }
}

// The canonical form measures tails above the last step's thresholds. It uses the share that
// survived instead of the intended share.
TEST(Sidco, CorrectsTheEstimateOfItsRememberedStages) {
  int kept = 0;
  int corrected = 0;
  for (const std::string& fit : kFits) {
    for (const std::int64_t stages : {1, 2, 4}) {
      const auto sidco = MakeSparsifier("sidco", Fixed(fit, stages));
      for (const char* data : {"gaussian", "laplace", "layers"}) {
        constexpr std::size_t kN = 60'013;
        constexpr double kDensity = 0.02;
        constexpr std::size_t kK = 1200;
        const auto target = [&](std::int64_t stage) {  // density after a stage, from 0 on
          if (stages == 1) return kDensity;
          return 0.25 * std::pow(kDensity / 0.25,
                                 static_cast<double>(stage) / static_cast<double>(stages - 1));
        };
        std::vector<double> boundaries;
        Selection selection(*sidco, kN, kDensity, 1, true);
        for (std::uint64_t step = 0; step < 6; ++step) {
          const auto gradient = MakeData(data, kN, step);
          const std::vector<float> x = selection.WithResidual(gradient);
          const auto a = Magnitudes(x);
          if (step == 0) {  // nothing is remembered yet: boundaries are the paper's
            for (std::int64_t stage = 0; stage + 1 < stages; ++stage) {
              boundaries.push_back(
                  stage == 0 ? FirstThreshold(fit, a, target(0))
                             : NextThreshold(fit, a, boundaries.back(), target(1) / target(0)));
            }
          }
          std::vector<double> thresholds = {FirstThreshold(fit, a, target(0))};
          for (std::int64_t stage = 1; stage < stages; ++stage) {
            const double t = boundaries[static_cast<std::size_t>(stage - 1)];
            const double survived = static_cast<double>(Above(x, t).size()) / kN;
            thresholds.push_back(NextThreshold(fit, a, t, target(stage) / survived));
          }
          boundaries.assign(thresholds.begin(), thresholds.end() - 1);
          const auto estimated = Above(x, thresholds.back());
          const bool close = estimated.size() + kK / 50 >= kK && estimated.size() <= kK + kK / 50;
          ASSERT_EQ(selection.Run(gradient, step).indices,
                    close ? estimated : LargestByDefinition(x, kK).indices)
              << fit << " stages=" << stages << " " << data << " step=" << step << " estimated "
              << estimated.size();
          ++(close ? kept : corrected);
        }
      }
    }
  }
  EXPECT_GT(kept, 10);
  EXPECT_GT(corrected, 10);
}

// Gaussian tails are lighter than exponential ones: one stage selects 4 % of the target, two stages
// 60 %. Every five steps a stage is added until the count is within 20 %.
TEST(Sidco, StagesAdaptToTheTensor) {
  constexpr std::size_t kN = 100'000;
  const auto adaptive = MakeSparsifier("sidco@paper");
  Selection gaussian(*adaptive, kN, 0.01, 1, false);
  Selection laplace(*adaptive, kN, 0.01, 1, false);
  Selection single(MakeSparsifier("sidco@paper", {{"adaptive", false}}), kN, 0.01, 1, false);
  const auto ratio = [](Selection& selection, const char* data, std::uint64_t step) {
    const auto x = MakeData(data, kN, step);
    return static_cast<double>(selection.Run(x, step).indices.size()) / 1000;
  };
  // The tensors alternate; each one learns its own number of stages.
  for (std::uint64_t step = 0; step < 15; ++step) {
    const double light = ratio(gaussian, "gaussian", step);
    EXPECT_NEAR(ratio(laplace, "laplace", step), 1, 0.15) << step;
    EXPECT_LT(ratio(single, "gaussian", step), 0.1) << step;
    if (step < 5) {
      EXPECT_LT(light, 0.1);
    } else if (step < 10) {
      EXPECT_NEAR(light, 0.61, 0.1);
    } else {
      EXPECT_NEAR(light, 1.08, 0.1);
    }
  }
}

TEST(Sidco, FirstRatioMovesTheFirstStage) {
  constexpr std::size_t kN = 50'000;
  const auto x = MakeData("gaussian", kN, 1);
  for (const double ratio : {0.1, 0.5}) {
    Options options = Fixed("exponential", 2);
    options["first_ratio"] = ratio;
    Selection selection(MakeSparsifier("sidco@paper", options), kN, 0.01, 1, false);
    const auto a = Magnitudes(x);
    const double t = NextThreshold("exponential", a, ExponentialThreshold(a, ratio), 0.01 / ratio);
    EXPECT_NEAR(static_cast<double>(selection.Run(x, 0).indices.size()),
                static_cast<double>(Above(x, t).size()), 1);
  }
}

// Constant magnitudes: no element survives the first stage, so that the second has nothing to fit.
TEST(Sidco, AStageWithoutSurvivorsBecomesAnExactTopK) {
  constexpr std::size_t kN = 10'000;
  const std::vector<float> x(kN, -0.5f);
  for (const char* name : {"sidco", "sidco@paper"}) {
    for (const std::string& fit : kFits) {
      Selection selection(MakeSparsifier(name, Fixed(fit, 3)), kN, 0.01, 1, false);
      EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, 100).indices) << name << fit;
      EXPECT_EQ(selection.counters().fallbacks, 1u) << name << fit;
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing

// Tests momentum correction against the paper's algorithm, clipping, and the density's warm-up.
#include "core/feedback/momentum/momentum.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/error.hpp"
#include "core/feedback/feedback.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr std::size_t kN = 5000;

// The paper's algorithm in plain loops, for one tensor of n elements that lies behind another in
// the flat gradient.
struct ByDefinition {
  MomentumOptions options;
  std::vector<float> u = std::vector<float>(kN);
  std::vector<float> v = std::vector<float>(kN);

  // Returns the growth of v.
  std::vector<float> Add(const std::vector<float>& g) {
    const auto m = static_cast<float>(options.momentum);
    std::vector<float> growth(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      u[i] = options.nesterov ? m * (u[i] + g[i]) : m * u[i] + g[i];
      growth[i] = options.nesterov ? u[i] + g[i] : u[i];
      v[i] += growth[i];
    }
    return growth;
  }
  void Sent(const std::vector<std::uint32_t>& indices) {
    for (const std::uint32_t i : indices) {
      v[i] = 0;
      if (options.masking) u[i] = 0;
    }
  }
};

// Section 3.2, equations 5 to 7 and the masks of algorithm 4; also checks that nothing is lost.
TEST(Momentum, IsThePapersAlgorithmBitForBit) {
  const auto topk = MakeSparsifier("topk");
  for (const bool nesterov : {false, true}) {
    for (const bool masking : {false, true}) {
      const MomentumOptions options{0.9, nesterov, masking};
      constexpr Range kRange{777, 777 + kN};
      MomentumCorrection correction(kRange.end, options);
      Selection selection(*topk, kN, 0.01, 2, true);
      ThreadPool pool(2);
      ByDefinition expected{options};
      for (std::uint32_t step = 0; step < 20; ++step) {
        const auto gradient = MakeData("gaussian", kN, step);
        const auto growth = correction.Advance("local", kRange, gradient, 1.0f, pool);
        EXPECT_EQ(Bits({growth.begin(), growth.end()}), Bits(expected.Add(gradient)));
        const Selected sent = selection.Run({growth.begin(), growth.end()}, step);
        for (std::size_t j = 0; j < sent.indices.size(); ++j) {
          ASSERT_EQ(Bits(sent.values[j]), Bits(expected.v[sent.indices[j]]));
        }
        correction.Sent("local", kRange, sent.indices);
        expected.Sent(sent.indices);
        ASSERT_EQ(Bits(selection.residual()), Bits(expected.v));
        const auto velocity = correction.Velocity("local", kRange);
        ASSERT_EQ(Bits({velocity.begin(), velocity.end()}), Bits(expected.u));
      }
    }
  }
}

TEST(Momentum, DoesNotDependOnThePool) {
  constexpr std::size_t kLarge = kLargeShape;
  const auto gradient = MakeData("gaussian", kLarge, 1);
  std::vector<std::uint32_t> reference;
  ThreadPool one(1);
  const float clip = ClipFactor(gradient, 1.0, one);
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    MomentumCorrection correction(kLarge, {0.5, true, true});
    for (int step = 0; step < 2; ++step) {
      correction.Advance("local", {0, kLarge}, gradient, 0.25f, pool);
    }
    const auto velocity = correction.Velocity("local", {0, kLarge});
    const auto bits = Bits({velocity.begin(), velocity.end()});
    if (reference.empty()) reference = bits;
    EXPECT_EQ(bits, reference);
    EXPECT_EQ(ClipFactor(gradient, 1.0, pool), clip);
  }
}

TEST(Momentum, RangesAndNamesAreApart) {
  ThreadPool pool(1);
  MomentumCorrection correction(4, {0.5, false, true});
  const std::vector<float> gradient = {1, 2};
  correction.Advance("a", {0, 2}, gradient, 1, pool);
  correction.Advance("a", {2, 4}, gradient, 2, pool);
  correction.Sent("a", {2, 4}, std::vector<std::uint32_t>{1});
  const auto a = correction.Velocity("a", {0, 4});
  EXPECT_EQ(std::vector<float>(a.begin(), a.end()), (std::vector<float>{1, 2, 2, 0}));
  const auto b = correction.Velocity("b", {0, 2});
  EXPECT_EQ(std::vector<float>(b.begin(), b.end()), (std::vector<float>{0, 0}));
}

TEST(Momentum, RefusesFactorsThatDiverge) {
  for (const double momentum : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(MomentumCorrection(1, {momentum, false, true}), Error);
  }
}

TEST(Clipping, ScalesToTheNormAndLeavesSmallerGradientsAlone) {
  ThreadPool pool(1);
  const std::vector<float> gradient = {3, 0, -4};
  EXPECT_EQ(ClipFactor(gradient, 5.1, pool), 1.0f);
  EXPECT_FLOAT_EQ(ClipFactor(gradient, 1.0, pool), 0.2f);
  EXPECT_EQ(ClipFactor(std::vector<float>(3), 1.0, pool), 1.0f);
  EXPECT_EQ(ClipFactor(std::vector<float>{kInfinity}, 1.0, pool), 1.0f);
  EXPECT_THROW(ClipFactor(gradient, 0.0, pool), Error);
}

// Table 1 of the paper, down to its density: 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %.
TEST(Warmup, ComesDownToTheDensityByAFactor) {
  for (std::size_t epoch = 0; epoch < 6; ++epoch) {
    const double expected[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.001, 0.001};
    EXPECT_DOUBLE_EQ(WarmupDensity(epoch, 0.001, {4, 0.25, {}}), expected[epoch]) << epoch;
  }
  // By default the logarithm of the density falls in equal steps.
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    EXPECT_NEAR(WarmupDensity(epoch, 0.001, {2, {}, {}}), std::max(std::pow(0.1, epoch + 1), 0.001),
                1e-12);
  }
  EXPECT_DOUBLE_EQ(WarmupDensity(1, 0.1, {4, 0.25, {}}), 0.1);  // never below the density
  EXPECT_DOUBLE_EQ(WarmupDensity(0, 0.1, {}), 0.1);
}

TEST(Warmup, TakesAnExplicitSchedule) {
  const double schedule[] = {0.5, 0.004};
  EXPECT_EQ(WarmupDensity(1, 0.001, {2, {}, schedule}), 0.004);
  EXPECT_EQ(WarmupDensity(2, 0.001, {2, {}, schedule}), 0.001);
  EXPECT_THROW(WarmupDensity(0, 0.001, {3, {}, schedule}), Error);
  EXPECT_THROW(WarmupDensity(0, 0.001, {2, 0.5, schedule}), Error);
  EXPECT_THROW(WarmupDensity(0, 0.0, {}), Error);
  EXPECT_THROW(WarmupDensity(0, 0.5, {1, 1.5, {}}), Error);
}

}  // namespace
}  // namespace sparfuse::testing

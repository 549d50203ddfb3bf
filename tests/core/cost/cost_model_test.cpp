// Tests the seconds that a cost model charges for a collective's rounds, and the fit of a link's
// constants to measured times.
#include "core/cost/cost_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/cost/fit.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

using Points = std::vector<TimedTransfer>;

// 1 ms a message and 1 us a byte; 1 us an element added, 10 us an element scanned.
CostModel Simple() {
  CostModel cost;
  cost.links = {LinkCost::FromAlphaBeta(1e-3, 1e-6), LinkCost::FromAlphaBeta(1e-3, 1e-6)};
  cost.work_seconds[Work::kAdd] = 1e-6;
  cost.work_seconds[Work::kSelect] = 1e-5;
  for (LinkCost& link : cost.links) link.round_cpu_seconds = 1e-4;
  return cost;
}

CostModel::Phases PhasesOf(const CostModel& cost, std::vector<Round> rounds) {
  RoundPlan plan;
  plan.rounds = std::move(rounds);
  return cost.PhasesOf(plan);
}

TEST(CostModel, ChargesMessagesBytesAndWorkOfRounds) {
  Round round{.repeat = 3, .bytes = 600};
  round[Work::kAdd] = 50;
  round[Work::kSelect] = 7;
  const CostModel::Phases phases = PhasesOf(Simple(), {round});
  EXPECT_DOUBLE_EQ(phases.latency_seconds, 3e-3);
  EXPECT_DOUBLE_EQ(phases.on_links(), 600e-6);
  EXPECT_DOUBLE_EQ(phases.local_seconds, 50e-6 + 70e-6);
  EXPECT_DOUBLE_EQ(phases.cpu_seconds, 3e-4);
}

// Two of five repetitions cross between nodes; a byte within nodes takes up to 3 us.
TEST(CostModel, GoesAroundARingAtTheSlowestHop) {
  CostModel cost = Simple();
  const Round around{.repeat = 5, .bytes = 600, .within_bytes = 600, .within_starts = 3};
  const auto phases_at = [&](double within_alpha, double within_beta) {
    cost.links[0] = LinkCost::FromAlphaBeta(within_alpha, within_beta);
    return PhasesOf(cost, {around});
  };
  const CostModel::Phases fast = phases_at(1e-5, 1e-8);
  EXPECT_DOUBLE_EQ(fast.latency_seconds, 2 * 1e-3 + 3 * 1e-5);
  EXPECT_NEAR(fast.link_seconds[1], 600e-6, 1e-12);
  EXPECT_EQ(fast.link_seconds[0], 0);
  const CostModel::Phases slow = phases_at(1e-5, 3e-6);
  EXPECT_NEAR(slow.link_seconds[0], 1800e-6, 1e-12);
  EXPECT_EQ(slow.link_seconds[1], 0);
}

TEST(CostModel, ChargesFurtherMessagesOfARound) {
  CostModel cost = Simple();
  cost.links.fill(LinkCost::FromAlphaBeta(1e-3, 1e-6, 2e-5));
  for (LinkCost& link : cost.links) {
    link.round_cpu_seconds = 1e-4;
    link.message_cpu_seconds = 7e-6;
  }
  const CostModel::Phases phases =
      PhasesOf(cost, {{.repeat = 2, .messages = 4, .bytes = 600}, {.repeat = 5, .bytes = 0}});
  EXPECT_DOUBLE_EQ(phases.latency_seconds, 7 * 1e-3 + 2 * 3 * 2e-5);
  EXPECT_DOUBLE_EQ(phases.on_links(), 600e-6);
  EXPECT_DOUBLE_EQ(phases.cpu_seconds, 7 * 1e-4 + 2 * 3 * 7e-6);
}

// 3 ms within a node at half a core, 6 ms between nodes at a tenth; then a ring around both.
TEST(CostModel, ChargesProcessorsByTheClassOfTheLink) {
  CostModel cost;
  cost.exchange_cpu_seconds = 1e-5;
  cost.links = {LinkCost::FromAlphaBeta(1e-3, 1e-6), LinkCost::FromAlphaBeta(2e-3, 4e-6)};
  cost.links[0].round_cpu_seconds = 1e-4;
  cost.links[0].cpu_fraction = 0.5;
  cost.links[1].round_cpu_seconds = 3e-4;
  cost.links[1].cpu_fraction = 0.1;
  RoundPlan plan;
  plan.rounds = {{.repeat = 1, .bytes = 2000, .link = LinkClass::kIntraNode},
                 {.repeat = 2, .bytes = 1000}};
  EXPECT_DOUBLE_EQ(cost.PhasesOf(plan).cpu_seconds, 1e-5 + (1e-4 + 1.5e-3) + 2 * (3e-4 + 4e-4));
  plan.rounds = {{.repeat = 3, .bytes = 3000, .within_bytes = 3000, .within_starts = 1}};
  EXPECT_DOUBLE_EQ(cost.PhasesOf(plan).cpu_seconds,
                   1e-5 + 1e-4 + 2 * 3e-4 + 0.5 * 1e-3 + 0.1 * (2 * 2e-3 + 12e-3));
}

TEST(CostModel, ChargesARoundWithoutMessagesForItsWorkAlone) {
  Round round{.messages = 0};
  round[Work::kSelect] = 7;
  const CostModel::Phases phases = PhasesOf(Simple(), {round});
  EXPECT_EQ(phases.latency_seconds, 0);
  EXPECT_EQ(phases.on_links(), 0);
  EXPECT_EQ(phases.cpu_seconds, 0);
  EXPECT_DOUBLE_EQ(phases.local_seconds, 70e-6);
}

TEST(CostModel, ChargesTheHostsWorkWhereACollectiveSumsThere) {
  Round round{.messages = 0};
  round[Work::kAdd] = 50;
  round[Work::kToHost] = 3;
  RoundPlan plan;
  plan.rounds = {round};
  CostModel cost = Simple();
  cost.host_work_seconds[Work::kAdd] = 1e-4;
  cost.host_work_seconds[Work::kToHost] = 1e-3;
  EXPECT_DOUBLE_EQ(cost.PhasesOf(plan).local_seconds, 50e-6);
  plan.on_host = true;
  EXPECT_DOUBLE_EQ(cost.PhasesOf(plan).local_seconds, 5e-3 + 3e-3);
}

TEST(FitAlphaBeta, FindsAnExactLine) {
  Points points;
  for (const double bytes : {0.0, 1024.0, 65536.0, 4194304.0}) {
    points.push_back({bytes, 2e-5 + 3e-10 * bytes});
  }
  const AlphaBeta fit = FitAlphaBeta(points);
  EXPECT_NEAR(fit.alpha_seconds, 2e-5, 1e-17);
  EXPECT_NEAR(fit.seconds_per_byte, 3e-10, 1e-22);
  EXPECT_NEAR(fit.Seconds(1e6), 3.2e-4, 1e-15);
  EXPECT_NEAR(fit.worst_relative_residual, 0, 1e-12);
  EXPECT_NEAR(fit.r_squared, 1, 1e-12);
}

// Weights 1, 1, 1/4: W = 9/4, Wx = 3/2, Wy = 5/2, Wxx = 2, Wxy = 2, determinant 9/4. Hence alpha =
// 8/9, beta = 1/3, and relative residuals 1/9, -2/9, 2/9, whose squares add up to 1/9.
TEST(FitAlphaBeta, WeighsRelativeErrors) {
  const AlphaBeta fit = FitAlphaBeta(Points{{0, 1}, {1, 1}, {2, 2}});
  EXPECT_DOUBLE_EQ(fit.alpha_seconds, 8.0 / 9);
  EXPECT_DOUBLE_EQ(fit.seconds_per_byte, 1.0 / 3);
  EXPECT_DOUBLE_EQ(fit.alpha_standard_error, std::sqrt(8.0) / 9);
  EXPECT_DOUBLE_EQ(fit.seconds_per_byte_standard_error, 1.0 / 3);
  ASSERT_EQ(fit.relative_residuals.size(), 3u);
  EXPECT_NEAR(fit.relative_residuals[0], 1.0 / 9, 1e-15);
  EXPECT_NEAR(fit.relative_residuals[1], -2.0 / 9, 1e-15);
  EXPECT_NEAR(fit.relative_residuals[2], 2.0 / 9, 1e-15);
  EXPECT_NEAR(fit.rms_relative_residual, std::sqrt(1.0 / 27), 1e-15);
  EXPECT_NEAR(std::abs(fit.worst_relative_residual), 2.0 / 9, 1e-15);
  EXPECT_NEAR(fit.r_squared, 0.5, 1e-15);
}

// Times vary by 5 %. Both constants lie within four standard errors of the truth; for 40 points a
// correct fit misses this about once in 10,000 fits. The errors have the size of the noise.
TEST(FitAlphaBeta, StandardErrorsCoverNoise) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    Points points;
    for (int i = 0; i < 40; ++i) {
      const double bytes = i % 10 == 0 ? 0 : std::pow(4.0, i % 10 + 2);
      const double noise = static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
      points.push_back({bytes, (1e-4 + 1e-9 * bytes) * (1 + 0.1 * std::sqrt(3.0) * noise)});
    }
    const AlphaBeta fit = FitAlphaBeta(points);
    EXPECT_LT(std::abs(fit.alpha_seconds - 1e-4), 4 * fit.alpha_standard_error);
    EXPECT_LT(std::abs(fit.seconds_per_byte - 1e-9), 4 * fit.seconds_per_byte_standard_error);
    EXPECT_LT(fit.alpha_standard_error, 0.02 * 1e-4);
    EXPECT_GT(fit.rms_relative_residual, 0.03);
    EXPECT_LT(fit.rms_relative_residual, 0.07);
  }
}

std::string MessageOf(const Points& points) {
  return testing::ErrorOf([&] { FitAlphaBeta(points); }, FailureKind::kData);
}

TEST(FitAlphaBeta, RefusesWhatDeterminesNoLine) {
  EXPECT_SAYS(MessageOf({}), "0 point(s)");
  EXPECT_SAYS(MessageOf({{0, 1e-5}, {1024, 2e-5}}), "at least 3");
  EXPECT_SAYS(MessageOf({{64, 1e-5}, {64, 2e-5}, {64, 3e-5}}), "at least two sizes");
  EXPECT_SAYS(MessageOf({{0, 0}, {64, 1e-5}, {128, 2e-5}}), "a time above 0");
}

}  // namespace
}  // namespace sparfuse

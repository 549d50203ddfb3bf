// Tests what a cost model makes of the rounds of a collective.
#include "core/cost/cost_model.hpp"

#include <gtest/gtest.h>

namespace sparfuse {
namespace {

// 1 ms a message and 1 us a byte; 1 us an element added, 10 us one looked at.
CostModel Simple() {
  CostModel cost;
  cost.links = {LinkCost::FromAlphaBeta(1e-3, 1e-6), LinkCost::FromAlphaBeta(1e-3, 1e-6)};
  cost.work_seconds[Work::kAdd] = 1e-6;
  cost.work_seconds[Work::kSelect] = 1e-5;
  for (LinkCost& link : cost.links) link.round_cpu_seconds = 1e-4;
  return cost;
}

TEST(CostModel, ChargesMessagesBytesAndWorkOfRounds) {
  Round round{.repeat = 3, .bytes = 600};
  round[Work::kAdd] = 50;
  round[Work::kSelect] = 7;
  RoundPlan plan;
  plan.rounds = {round};
  const CostModel::Phases phases = Simple().PhasesOf(plan);
  EXPECT_DOUBLE_EQ(phases.latency_seconds, 3e-3);
  EXPECT_DOUBLE_EQ(phases.on_links(), 600e-6);
  EXPECT_DOUBLE_EQ(phases.local_seconds, 50e-6 + 70e-6);
  EXPECT_DOUBLE_EQ(phases.cpu_seconds, 3e-4);
}

// Of five repetitions two cross between nodes; what goes within nodes takes 3 us a byte.
TEST(CostModel, GoesAroundARingAtTheSlowestHop) {
  CostModel cost = Simple();
  const Round around{.repeat = 5, .bytes = 600, .within_bytes = 600, .within_starts = 3};
  const auto phases_at = [&](double within_alpha, double within_beta) {
    cost.links[0] = LinkCost::FromAlphaBeta(within_alpha, within_beta);
    RoundPlan plan;
    plan.rounds = {around};
    return cost.PhasesOf(plan);
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
  RoundPlan plan;
  plan.rounds = {{.repeat = 2, .messages = 4, .bytes = 600}, {.repeat = 5, .bytes = 0}};
  const CostModel::Phases phases = cost.PhasesOf(plan);
  EXPECT_DOUBLE_EQ(phases.latency_seconds, 7 * 1e-3 + 2 * 3 * 2e-5);
  EXPECT_DOUBLE_EQ(phases.on_links(), 600e-6);
  EXPECT_DOUBLE_EQ(phases.cpu_seconds, 7 * 1e-4 + 2 * 3 * 7e-6);
}

// 3 ms within a node at half a core, 6 ms between nodes at a tenth; and a ring around both.
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
  RoundPlan plan;
  plan.rounds = {round};
  const CostModel::Phases phases = Simple().PhasesOf(plan);
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

}  // namespace
}  // namespace sparfuse

// Tests the sums of a round by hand. Compares the rounds of equal payloads with the rounds that
// collectives plan for any payloads. Also tests that exchanges grow as a cost model says.
#include "core/collective/rounds.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/collective/collective.hpp"
#include "core/cost/cost_model.hpp"

namespace sparfuse {
namespace {

// Ranks 0 to 2 are on one node, 3 and 4 on another: 30 bytes leave the first node, 5 the second.
TEST(MessageRounds, AddsUpWhatRanksAndNodesSend) {
  RoundPlan plan;
  plan.per_rank.resize(5);
  const std::vector<RankMessage> messages = {{0, 3, 10}, {1, 4, 20}, {0, 2, 7}, {4, 0, 5}};
  const Round& round = AddRound(messages, {5, 3}, plan);
  EXPECT_EQ(round.repeat, 1u);
  EXPECT_EQ(round.messages, 2u);  // of rank 0
  EXPECT_EQ(round.bytes, 20u);    // out of rank 1, into rank 4
  EXPECT_EQ(round.node_bytes, 30u);
  EXPECT_EQ(round.link, LinkClass::kInterNode);
  const std::vector<Traffic> expected = {
      {2, 1, 17, 5}, {1, 0, 20, 0}, {0, 1, 0, 7}, {0, 1, 0, 10}, {1, 1, 5, 20}};
  EXPECT_EQ(plan.per_rank, expected);
}

TEST(MessageRounds, StaysWithinNodesWhereMessagesDo) {
  RoundPlan plan;
  plan.per_rank.resize(4);
  const std::vector<RankMessage> first = {{0, 1, 8}};
  const std::vector<RankMessage> second = {{0, 1, 4}, {2, 3, 0}};
  AddRound(first, {4, 2}, plan);
  AddRound(second, {4, 2}, plan);
  ASSERT_EQ(plan.rounds.size(), 2u);
  for (const Round& round : plan.rounds) {
    EXPECT_EQ(round.link, LinkClass::kIntraNode);
    EXPECT_EQ(round.node_bytes, 0u);
  }
  EXPECT_EQ(plan.per_rank[0], (Traffic{2, 0, 12, 0}));
  EXPECT_EQ(plan.per_rank[3], (Traffic{0, 1, 0, 0}));
}

void ExpectEqual(const Round& a, const Round& b) {
  EXPECT_EQ(a.repeat, b.repeat);
  EXPECT_EQ(a.messages, b.messages);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.link, b.link);
  EXPECT_EQ(a.node_bytes, b.node_bytes);
  EXPECT_EQ(a.within_bytes, b.within_bytes);
  EXPECT_EQ(a.within_starts, b.within_starts);
  EXPECT_EQ(a.work, b.work);
}

const Topology kTopologies[] = {{1, 1}, {2, 1}, {3, 1}, {8, 8}, {8, 4}, {12, 3}, {64, 8}};

TEST(EvenRounds, AreThoseOfEqualPayloads) {
  std::size_t compared = 0;
  for (const CollectiveDescriptor& descriptor : CoreCollectives()) {
    const auto collective = MakeCollective(descriptor);
    for (const Topology& topology : kTopologies) {
      for (const AllGatherBy by : {AllGatherBy::kRing, AllGatherBy::kTwoLevel}) {
        for (const std::uint64_t bytes : {0u, 8u, 16u, 1000u, 4096u, 12345672u}) {
          RoundPlan even;
          if (!AddModelledEvenRounds(*collective, bytes, topology, by, even)) continue;
          const std::vector<std::uint64_t> payloads(static_cast<std::size_t>(topology.ranks),
                                                    bytes);
          const RoundPlan plan = ModelledRounds(*collective, SizesOf(payloads), topology, by);
          SCOPED_TRACE(std::string(descriptor.name) + ", " + std::to_string(topology.ranks) +
                       " ranks, " + std::to_string(bytes) + " bytes");
          ASSERT_EQ(even.rounds.size(), plan.rounds.size());
          for (std::size_t r = 0; r < plan.rounds.size(); ++r) {
            ExpectEqual(even.rounds[r], plan.rounds[r]);
          }
          ++compared;
        }
      }
    }
  }
  EXPECT_GE(compared, 3u * 7 * 2 * 6);  // for the ring, the backend's collective and the all-gather
}

TEST(EvenRounds, GrowAsTheCostModelSays) {
  std::mt19937 random(3);
  const PiecewiseLinear bent({{0, 3e-5}, {64, 2.5e-5}, {4096, 4e-5}, {1e6, 2e-3}});
  for (const bool straight : {true, false}) {
    CostModel cost = DeclaredCost(10, 2e-5);
    if (!straight) cost.links.fill({bent, 0});
    cost.links[static_cast<std::size_t>(LinkClass::kIntraNode)] =
        LinkCost::FromAlphaBeta(5e-6, 1e-11);
    for (const char* name : {"ring-allreduce", "sparse-allgather"}) {
      const auto collective = CoreCollective(name);
      for (const Topology& topology : kTopologies) {
        const auto seconds = [&](std::uint64_t bytes) {
          RoundPlan plan;
          EXPECT_TRUE(
              AddModelledEvenRounds(*collective, bytes, topology, AllGatherBy::kTwoLevel, plan));
          return cost.PhasesOf(plan, *collective, bytes).alone();
        };
        const auto whole = std::uint64_t{1} << 20;
        const std::uint64_t many = whole * 8 * static_cast<std::uint64_t>(topology.ranks);
        RoundPlan plan;
        AddModelledEvenRounds(*collective, many, topology, AllGatherBy::kTwoLevel, plan);
        const CostModel::Growth growth = cost.GrowthOf(plan, *collective, many);
        if (topology.ranks > 1) {
          EXPECT_GT(growth.seconds_per_byte, 0);
        }
        for (int trial = 0; trial < 200; ++trial) {
          const std::uint64_t fewer = 4 * (random() % (trial % 2 == 0 ? 2000 : 2000000));
          const std::uint64_t more = 4 * (random() % (trial % 3 == 0 ? 500 : 500000));
          const double rounded = 4.0 * topology.ranks;  // each rank has whole elements
          EXPECT_GE(
              seconds(fewer + more) - seconds(fewer),
              growth.seconds_per_byte * (static_cast<double>(more) - rounded) - growth.fall - 1e-12)
              << name << ", " << topology.ranks << " ranks, " << fewer << " + " << more;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse

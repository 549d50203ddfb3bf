// Tests the sums of a round by hand.
#include <gtest/gtest.h>

#include "core/collective/rounds.hpp"

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

}  // namespace
}  // namespace sparfuse

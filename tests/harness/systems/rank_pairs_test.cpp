// Tests which ranks exchange at once where links are measured.
#include <gtest/gtest.h>

#include <set>

#include "harness/systems/fingerprint.hpp"

namespace sparfuse::harness {
namespace {

using Phases = std::vector<std::vector<RankPair>>;
constexpr LinkClass kWithin = LinkClass::kIntraNode, kBetween = LinkClass::kInterNode;

TEST(RankPairs, OfOneNodeAreItsFirstTwoRanks) {
  EXPECT_EQ(PhasesOf({1, 1}), Phases());
  EXPECT_EQ(PhasesOf({2, 2}), (Phases{{{0, 1, kWithin}}}));
  EXPECT_EQ(PhasesOf({4, 4}), (Phases{{{0, 1, kWithin}}}));
}

TEST(RankPairs, OfNodesWithARankEachAreBetweenNeighbours) {
  EXPECT_EQ(PhasesOf({2, 1}), (Phases{{{0, 1, kBetween}}}));
  EXPECT_EQ(PhasesOf({3, 1}), (Phases{{{0, 1, kBetween}}, {{1, 2, kBetween}}}));
  EXPECT_EQ(PhasesOf({5, 1}),
            (Phases{{{0, 1, kBetween}, {2, 3, kBetween}}, {{1, 2, kBetween}, {3, 4, kBetween}}}));
}

TEST(RankPairs, OfNodesWithTwoRanksAreWithinThemFirst) {
  EXPECT_EQ(PhasesOf({4, 2}), (Phases{{{0, 1, kWithin}, {2, 3, kWithin}}, {{0, 2, kBetween}}}));
  EXPECT_EQ(PhasesOf({6, 2}), (Phases{{{0, 1, kWithin}, {2, 3, kWithin}, {4, 5, kWithin}},
                                      {{0, 2, kBetween}},
                                      {{2, 4, kBetween}}}));
}

TEST(RankPairs, OfALastNodeWithOneRankHaveNoneWithinIt) {
  EXPECT_EQ(PhasesOf({3, 2}), (Phases{{{0, 1, kWithin}}, {{0, 2, kBetween}}}));
  EXPECT_EQ(PhasesOf({5, 2}),
            (Phases{{{0, 1, kWithin}, {2, 3, kWithin}}, {{0, 2, kBetween}}, {{2, 4, kBetween}}}));
}

// The law behind the lists: every link between nodes that follow one another once, of every node
// one pair at a time, and the link's kind as the topology has it.
TEST(RankPairs, MeetEveryLinkOnceAndNoNodeTwiceAtOnce) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (int a_node = 1; a_node <= 4; ++a_node) {
      const Topology topology{ranks, a_node};
      int between = 0;
      for (const auto& phase : PhasesOf(topology)) {
        std::set<int> nodes;
        EXPECT_FALSE(phase.empty());
        for (const RankPair& pair : phase) {
          EXPECT_TRUE(0 <= pair.lower && pair.lower < pair.upper && pair.upper < ranks);
          EXPECT_EQ(pair.link, topology.LinkBetween(pair.lower, pair.upper));
          EXPECT_TRUE(nodes.insert(topology.NodeOf(pair.lower)).second);
          if (pair.link == kBetween) {
            EXPECT_TRUE(nodes.insert(topology.NodeOf(pair.upper)).second);
          }
          between += pair.link == kBetween;
        }
      }
      EXPECT_EQ(between, topology.nodes() - 1) << ranks << " ranks, " << a_node << " a node";
    }
  }
}

}  // namespace
}  // namespace sparfuse::harness

// Tests which ranks exchange at the same time while links are measured. Also tests which
// differences of two fingerprints are named, in which words and order.
#include "harness/systems/fingerprint.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using Words = std::vector<std::string>;
using Phases = std::vector<std::vector<RankPair>>;

FingerprintValue Quantity(double value, double error = 0.01) {
  return {value, value * (1 - error), value * (1 + error), 15, "", {}};
}

// Four equal nodes of two ranks each.
Fingerprint Lab() {
  Fingerprint lab;
  lab.ranks = 8;
  lab.ranks_per_node = 2;
  lab.all_reduce = "native-allreduce";
  lab.all_gather = "sparse-allgather";
  for (const FingerprintQuantity& each : FingerprintQuantities())
    lab.quantities[each.name] = Quantity(each.unit == std::string_view("s") ? 0.003 : 10.2);
  lab.quantities["inter_node_bandwidth"].worst = {10.0, {2, 4}};
  return lab;
}

std::vector<std::string> Sentences(const Fingerprint& first, const Fingerprint& second) {
  std::vector<std::string> sentences;
  for (const auto& each : DifferencesOf(first, second))
    sentences.push_back(SentenceOf(each, "a", "b"));
  return sentences;
}

TEST(Fingerprint, OfTheSameSystemUnderAnotherNameIsTheSame) {
  Fingerprint renamed = Lab();
  renamed.id = "another/2026";  // a trial's own value
  EXPECT_EQ(Sentences(Lab(), renamed), Words());
  EXPECT_EQ(WhatIsNotCompared(Lab(), renamed), "");
}

TEST(Fingerprint, ALinkAtHalfSpeedIsNamedFirst) {
  Fingerprint slow = Lab();
  slow.quantities["inter_node_bandwidth"] = Quantity(5.1);
  slow.quantities["top_k"] = Quantity(0.0057);
  slow.quantities["all_reduce_4194304_bytes"] = Quantity(0.0059);
  EXPECT_EQ(Sentences(Lab(), slow),
            (Words{"b's bandwidth between nodes is half of a's (5.1 Gbit/s against 10.2 Gbit/s)",
                   "b's all-reduce of 4 MiB takes 2 times as long as a's (5.9 ms against 3 ms)",
                   "b's top-k selection takes 1.9 times as long as a's (5.7 ms against 3 ms)"}));
  EXPECT_EQ(Sentences(slow, Lab())[0],
            "b's bandwidth between nodes is 2 times that of a's (10.2 Gbit/s against 5.1 Gbit/s)");
}

// One cable of three: the mean moves by less than the variation of a launch.
TEST(Fingerprint, OneSlowLinkAmongManyIsNamedByItsRanks) {
  Fingerprint slow = Lab();
  slow.quantities["inter_node_bandwidth"] = Quantity(8.5);
  slow.quantities["inter_node_bandwidth"].worst = {5.0, {4, 6}};
  EXPECT_EQ(Sentences(Lab(), slow),
            Words{"b's bandwidth between nodes (ranks 4 and 6) is half of a's (5 Gbit/s against 10 "
                  "Gbit/s)"});
  EXPECT_EQ(Sentences(slow, Lab()).size(), 1u);
}

TEST(Fingerprint, WhatIntervalsOrTheThresholdLeaveOpenIsNoDifference) {
  Fingerprint near = Lab();
  near.quantities["top_k"] = Quantity(0.003 * 1.24, 0);
  EXPECT_EQ(Sentences(Lab(), near), Words());
  Fingerprint wide = Lab();
  wide.quantities["top_k"] = Quantity(0.006, 0.6);
  EXPECT_EQ(Sentences(Lab(), wide), Words());
}

TEST(Fingerprint, UnlikeNumbersOfRanksCompareLinksAlone) {
  Fingerprint larger = Lab();
  larger.ranks = 16;
  larger.ranks_per_node = 4;
  for (auto& [name, quantity] : larger.quantities) {
    if (name.starts_with("all_") || name == "memory_read") quantity = Quantity(quantity.value * 9);
  }
  EXPECT_EQ(Sentences(Lab(), larger), Words());
  EXPECT_EQ(WhatIsNotCompared(Lab(), larger),
            "collectives, memory, products and selections are not compared: ranks 8 against 16, "
            "ranks_per_node 2 against 4");
  larger.link = LinkShape{1, 100};  // emulated: a setting, not a property
  larger.quantities["intra_node_bandwidth"] = Quantity(1);
  EXPECT_EQ(Sentences(Lab(), larger), Words());
}

// Every quantity has its sentence, and differences are the same in both directions.
TEST(Fingerprint, DifferencesAreMutual) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> factor(0.5, 2);
  for (int draw = 0; draw < 200; ++draw) {
    Fingerprint other = Lab();
    for (auto& [name, quantity] : other.quantities)
      quantity = Quantity(quantity.value * factor(random));
    const Fingerprint first = Lab();
    const auto there = DifferencesOf(first, other), back = DifferencesOf(other, first);
    ASSERT_EQ(there.size(), back.size());
    for (std::size_t i = 0; i < there.size(); ++i) {
      EXPECT_EQ(there[i].quantity, back[i].quantity);
      EXPECT_EQ(there[i].first, back[i].second);
      EXPECT_EQ(there[i].second, back[i].first);
      EXPECT_SAYS(SentenceOf(there[i], "a", "b"), there[i].quantity->words);
    }
    EXPECT_TRUE(DifferencesOf(other, other).empty());
  }
}

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

// The law of the lists: every link between consecutive nodes occurs once, a node has one pair at a
// time, and the link's class is the topology's.
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

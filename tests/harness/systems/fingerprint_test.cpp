// Tests which differences of two fingerprints are named, and in which words and order.
#include "harness/systems/fingerprint.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

FingerprintValue Quantity(double value, double error = 0.01) {
  return {value, value * (1 - error), value * (1 + error), 15, "", {}};
}

// Four nodes of two ranks each, all alike.
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

using Words = std::vector<std::string>;

TEST(Fingerprint, OfTheSameSystemUnderAnotherNameIsTheSame) {
  Fingerprint renamed = Lab();
  renamed.id = "another/2026";  // what a trial has of it
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
  EXPECT_DOUBLE_EQ(DifferencesOf(Lab(), slow)[0].times_as_slow(), 2);
  EXPECT_EQ(Sentences(slow, Lab())[0],
            "b's bandwidth between nodes is 2 times that of a's (10.2 Gbit/s against 5.1 Gbit/s)");
}

// One cable of three: the mean moves by less than what a launch leaves open.
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
  larger.link = LinkShape{1, 100};  // emulated: a setting, no property
  larger.quantities["intra_node_bandwidth"] = Quantity(1);
  EXPECT_EQ(Sentences(Lab(), larger), Words());
}

// Every quantity has its sentence, and what differs one way differs the other way.
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
      EXPECT_NEAR(there[i].times_as_slow() * back[i].times_as_slow(), 1, 1e-12);
      EXPECT_SAYS(SentenceOf(there[i], "a", "b"), there[i].quantity->words);
    }
    EXPECT_TRUE(DifferencesOf(other, other).empty());
  }
}

}  // namespace
}  // namespace sparfuse::harness

// Tests Zen's exchange against sums and bytes worked out by hand, also with node-first aggregation.
#include "baselines/zen/zen.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "baselines/zen/hash_lists.hpp"
#include "baselines/zen/zen_sizes.hpp"
#include "tests/baselines/zen/zen_runs.hpp"

namespace sparfuse::testing {
namespace {

using baselines::ServerOf;
using baselines::ZenSizes;

// In the order of ranks: bytes sent and received.
using Bytes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
Bytes BytesOf(const std::vector<Outcome>& outcomes) {
  Bytes bytes;
  for (const Outcome& each : outcomes)
    bytes.emplace_back(each.traffic.bytes_sent, each.traffic.bytes_received);
  return bytes;
}

const Sent kByHand{"by_hand", 8, 2, {{{0, 1.0f}, {5, 2.0f}}, {{0, 3.0f}, {6, -2.0f}}}};

TEST(Zen, SumsContiguousRangesAsByHand) {
  // Rank 0 serves 0 to 3 and has 0 -> 4; rank 1 serves 4 to 7 and has 5 -> 2, 6 -> -2. Each sends
  // the other one element of 8 bytes, then a head of 8 and a bitmap of 1 byte, then values.
  const auto zen = MakeZen(Choice("balance", "ranges"));
  const auto outcomes = RunExchanges(*zen, {kByHand})[0];
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.applied, (std::vector<float>{4, 0, 0, 0, 0, 2, -2, 0}));
    EXPECT_EQ(each.summed, 3u);
    EXPECT_EQ(each.traffic.messages_sent, 3u);
  }
  EXPECT_EQ(BytesOf(outcomes), (Bytes{{8 + 9 + 4, 8 + 9 + 8}, {8 + 9 + 8, 8 + 9 + 4}}));
  using Words = std::vector<std::uint64_t>;
  EXPECT_EQ(outcomes[0].seen, (Words{0, 0, 0, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(outcomes[1].seen, (Words{0, 0, 0, 2, 1, 1, 1, 1, 2, 1}));
}

TEST(Zen, SendsIndicesWhereTheyAreSmallerOrAskedFor) {
  Options options = Choice("balance", "ranges");
  options["index_form"] = std::string("coo");
  auto outcomes = RunExchanges(*MakeZen(options), {kByHand})[0];
  EXPECT_EQ(BytesOf(outcomes), (Bytes{{8 + 8 + 8, 8 + 8 + 16}, {8 + 8 + 16, 8 + 8 + 8}}));
  EXPECT_EQ(outcomes[0].applied, (std::vector<float>{4, 0, 0, 0, 0, 2, -2, 0}));
  // Of 800 elements a bitmap takes 50 bytes at each server: more than one or two indices.
  Sent wide = kByHand;
  wide.elements = 800;
  wide.by_rank = {{{0, 1.0f}, {500, 2.0f}}, {{0, 3.0f}, {600, -2.0f}}};
  outcomes = RunExchanges(*MakeZen(Choice("balance", "ranges")), {wide})[0];
  EXPECT_EQ(BytesOf(outcomes), (Bytes{{8 + 8 + 8, 8 + 8 + 16}, {8 + 8 + 16, 8 + 8 + 8}}));
  EXPECT_EQ(outcomes[0].seen.back(), 0u);
  // Each server chooses for itself: 13 elements of 400 at the first.
  for (std::uint32_t i = 0; i < 13; ++i) wide.by_rank[0][i] = 1.0f;
  outcomes = RunExchanges(*MakeZen(Choice("balance", "ranges")), {wide})[0];
  EXPECT_EQ(outcomes[0].seen.back(), 50u);
  EXPECT_EQ(outcomes[1].seen.back(), 0u);
  EXPECT_EQ(outcomes[0].applied, SumOf(wide));
}

TEST(Zen, GivesEachServerWhatItsHashSays) {
  const Sent sent = RandomSent(3, 900, 200, 1);
  const auto outcomes = RunExchanges(*MakeZen(), {sent})[0];
  for (std::uint32_t server = 0; server < 3; ++server) {
    std::size_t kept = 0;
    std::size_t in = 0;
    std::vector<bool> there(900);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      for (const auto& [index, value] : sent.by_rank[rank]) {
        if (ServerOf(index, 3) != server) continue;
        ++(rank == server ? kept : in);
        there[index] = true;
      }
    }
    const ZenSizes sizes = ZenSizes::Of(outcomes[server].seen);
    EXPECT_EQ(sizes.Kept(), kept);
    EXPECT_EQ(sizes.in, in);
    EXPECT_EQ(sizes.summed, static_cast<std::size_t>(std::count(there.begin(), there.end(), true)));
    EXPECT_EQ(outcomes[server].applied, SumOf(sent));
  }
}

// The all-gather adds payloads in the order of ranks, too.
TEST(Zen, AddsInRankOrderBitForBit) {
  for (const bool node_first : {false, true}) {
    Sent sent = RandomSent(6, 300, 120, 2);
    std::mt19937 random(3);
    for (SparseVector& own : sent.by_rank) {
      for (auto& [index, value] : own) {
        value = std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 40));
      }
    }
    std::vector<float> expected(sent.elements);
    for (std::size_t first = 0; first < 6; first += node_first ? 2 : 1) {  // node by node
      std::vector<float> node(sent.elements);
      for (std::size_t rank = first; rank < first + (node_first ? 2 : 1); ++rank) {
        for (const auto& [index, value] : sent.by_rank[rank]) node[index] += value;
      }
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += node[i];
    }
    const auto zen = MakeZen({{"node_first", node_first}});
    const auto outcomes = RunExchanges(*zen, {sent}, 2)[0];
    for (const Outcome& each : outcomes) {
      EXPECT_EQ(each.applied, expected) << node_first;
    }
  }
}

TEST(Zen, GivesASumThatOverflowsToAllRanks) {
  Sent sent{"overflow", 100, 1, {}};
  for (int rank = 0; rank < 3; ++rank) sent.by_rank.push_back({{77, 3e38f}});
  const auto outcomes = RunExchanges(*MakeZen(), {sent})[0];
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.applied[77], std::numeric_limits<float>::infinity());
  }
}

TEST(Zen, SplitsByHashingAsByCounting) {
  std::vector<Sent> steps;
  for (unsigned step = 0; step < 3; ++step) steps.push_back(RandomSent(5, 3000, 300, step));
  const auto counted = RunExchanges(*MakeZen(), steps);
  Options options = Choice("partition", "hierarchical");
  options["slots_per_element"] = 0.5;  // most elements find no slot, and regions overflow
  options["serial_part"] = 0.01;
  options["probes"] = std::int64_t{1};
  const auto hashed = RunExchanges(*MakeZen(options), steps);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    for (std::size_t rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(hashed[step][rank].applied, counted[step][rank].applied);
      EXPECT_EQ(hashed[step][rank].seen, counted[step][rank].seen);
    }
  }
}

// --- nodes ---

void ExpectCounted(const Collective& zen, const Sent& sent, std::size_t step,
                   const std::vector<Outcome>& outcomes, const Topology& topology) {
  const RoundPlan plan = zen.Rounds(RecordedSizes(zen, sent, step, outcomes), topology);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].traffic, plan.per_rank[rank]) << "rank " << rank;
  }
  EXPECT_EQ(plan.sums, outcomes[0].summed);
}

TEST(ZenNodeFirst, SumsAndCountsOnEveryGrid) {
  for (const auto& [ranks, per_node] : std::vector<std::pair<int, int>>{
           {1, 1}, {2, 1}, {2, 2}, {4, 2}, {6, 3}, {6, 2}, {8, 4}, {8, 2}, {9, 3}, {16, 4}}) {
    const Topology topology{ranks, per_node};
    for (Options options : std::vector<Options>{{},
                                                Choice("index_form", "coo"),
                                                Choice("index_form", "bitmap"),
                                                Choice("balance", "ranges"),
                                                Choice("partition", "hierarchical")}) {
      options["node_first"] = true;
      const auto zen = MakeZen(options);
      std::vector<Sent> steps;
      for (unsigned step = 0; step < 3; ++step) {
        steps.push_back(
            RandomSent(static_cast<std::size_t>(ranks), 500, step == 1 ? 0 : 5 + 70 * step, step));
      }
      const auto outcomes = RunExchanges(*zen, steps, per_node);
      for (std::size_t step = 0; step < steps.size(); ++step) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(per_node) +
                     " a node, step " + std::to_string(step));
        for (const Outcome& each : outcomes[step]) {
          ASSERT_EQ(each.applied, SumOf(steps[step]));
          ASSERT_TRUE(each.increasing);
        }
        ExpectCounted(*zen, steps[step], step, outcomes[step], topology);
      }
    }
  }
}

TEST(ZenNodeFirst, SendsLessBetweenNodes) {
  const Sent sent = RandomSent(8, 20'000, 400, 4);
  const Topology topology{8, 4};
  std::uint64_t between[2] = {};
  for (const bool node_first : {false, true}) {
    const auto zen = MakeZen({{"node_first", node_first}});
    const auto outcomes = RunExchanges(*zen, {sent}, 4)[0];
    const RoundPlan plan = zen->Rounds(RecordedSizes(*zen, sent, 0, outcomes), topology);
    EXPECT_EQ(plan.rounds.size(), node_first ? 4u : 2u);
    for (const Round& round : plan.rounds) {
      if (round.link == LinkClass::kInterNode) between[node_first] += round.node_bytes;
      EXPECT_TRUE(round.link == LinkClass::kInterNode || round.node_bytes == 0);
    }
  }
  // Each of four ranks of a node pulls what the other node has, or one for all.
  EXPECT_LT(between[1], between[0] / 2);
}

TEST(ZenNodeFirst, IsRefusedOnRaggedNodes) {
  const CollectiveDescriptor zen = baselines::ZenCollective();
  const auto refused = [&](bool node_first, const Topology& topology) {
    return zen.refuses(ResolveOptions("zen", zen.options, {{"node_first", node_first}}), topology);
  };
  EXPECT_EQ(refused(true, {8, 4}), "");
  EXPECT_EQ(refused(true, {3, 4}), "");  // one node
  EXPECT_EQ(refused(false, {5, 2}), "");
  EXPECT_NE(refused(true, {5, 2}).find("needs as many ranks on every node"), std::string::npos);
}

}  // namespace
}  // namespace sparfuse::testing

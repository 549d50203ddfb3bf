// Tests Zen's exchange against sums and bytes worked out by hand, also with node-first aggregation.
// Also tests the model's expectations against the specification's bytes and against runs.
#include "baselines/zen/zen.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "baselines/zen/hash_lists.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::testing {
namespace {

using baselines::ServerOf;
using baselines::ZenSizes;
using Bytes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

std::unique_ptr<Collective> MakeZen(const Options& options = {}) {
  static const CollectiveDescriptor kZen = baselines::ZenCollective();
  return MakeCollective(kZen, options);
}

Options Choice(const char* option, const char* value) { return {{option, std::string(value)}}; }

// Integers, whose sums are exact; the supports of ranks overlap.
Sent Integers(std::size_t ranks, std::size_t elements, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  return RandomSent(ranks, elements, count, random, [](std::mt19937& of) {
    return static_cast<float>(static_cast<int>(of() % 19) - 9);
  });
}

std::vector<float> SumOf(const Sent& sent) {
  std::vector<float> sum(sent.elements);
  for (const SparseVector& own : sent.by_rank) {
    for (const auto& [index, value] : own) sum[index] += value;
  }
  return sum;
}

// Sent and received bytes, by rank.
Bytes BytesOf(const std::vector<Outcome>& outcomes) {
  Bytes bytes;
  for (const Outcome& each : outcomes)
    bytes.emplace_back(each.traffic.bytes_sent, each.traffic.bytes_received);
  return bytes;
}

const Sent kByHand{"by_hand", 8, 2, {{{0, 1.0f}, {5, 2.0f}}, {{0, 3.0f}, {6, -2.0f}}}};

TEST(Zen, SumsContiguousRangesAsByHand) {
  // Rank 0 serves 0 to 3 and has 0 -> 4; rank 1 serves 4 to 7 and has 5 -> 2, 6 -> -2. Each sends
  // the other one element of 8 bytes, then a head of 8 bytes and a bitmap of 1 byte, then values.
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
  // A bitmap of 800 elements takes 50 bytes at each server: more than one or two indices.
  Sent wide = kByHand;
  wide.elements = 800;
  wide.by_rank = {{{0, 1.0f}, {500, 2.0f}}, {{0, 3.0f}, {600, -2.0f}}};
  outcomes = RunExchanges(*MakeZen(Choice("balance", "ranges")), {wide})[0];
  EXPECT_EQ(BytesOf(outcomes), (Bytes{{8 + 8 + 8, 8 + 8 + 16}, {8 + 8 + 16, 8 + 8 + 8}}));
  EXPECT_EQ(outcomes[0].seen.back(), 0u);
  // Each server chooses its own form: the first has 13 of 400 elements.
  for (std::uint32_t i = 0; i < 13; ++i) wide.by_rank[0][i] = 1.0f;
  outcomes = RunExchanges(*MakeZen(Choice("balance", "ranges")), {wide})[0];
  EXPECT_EQ(outcomes[0].seen.back(), 50u);
  EXPECT_EQ(outcomes[1].seen.back(), 0u);
  EXPECT_EQ(outcomes[0].applied, SumOf(wide));
}

TEST(Zen, GivesEachServerWhatItsHashSays) {
  const Sent sent = Integers(3, 900, 200, 1);
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

// Like the all-gather, it adds payloads in the order of ranks.
TEST(Zen, AddsInRankOrderBitForBit) {
  for (const bool node_first : {false, true}) {
    Sent sent = Integers(6, 300, 120, 2);
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
  for (unsigned step = 0; step < 3; ++step) steps.push_back(Integers(5, 3000, 300, step));
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
            Integers(static_cast<std::size_t>(ranks), 500, step == 1 ? 0 : 5 + 70 * step, step));
      }
      const auto outcomes = RunExchanges(*zen, steps, per_node);
      for (std::size_t step = 0; step < steps.size(); ++step) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(per_node) +
                     " a node, step " + std::to_string(step));
        for (const Outcome& each : outcomes[step]) {
          ASSERT_EQ(each.applied, SumOf(steps[step]));
          ASSERT_TRUE(each.increasing);
        }
        const RoundPlan plan = ExpectCounted(*zen, steps[step], step, outcomes[step], topology);
        EXPECT_EQ(plan.sums, outcomes[step][0].summed);
      }
    }
  }
}

TEST(ZenNodeFirst, SendsLessBetweenNodes) {
  const Sent sent = Integers(8, 20'000, 400, 4);
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
  // Each of four ranks of a node pulls the other node's sums, or one rank pulls them for all.
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
  EXPECT_SAYS(refused(true, {5, 2}), "needs equally many ranks on every node");
}

// Four ranks, two a node, with unequal numbers.
TEST(ZenRounds, CountWhatLeavesANode) {
  const auto words = [](std::uint64_t out, std::uint64_t in, std::uint64_t off_out,
                        std::uint64_t off_in, std::uint64_t summed) {
    ZenSizes sizes;
    sizes.node_sum = 20;
    sizes.out = out;
    sizes.in = in;
    sizes.off_node_out = off_out;
    sizes.off_node_in = off_in;
    sizes.summed = summed;
    return sizes.Words();
  };
  const ExchangeSizes sizes{{1000, 20, 0},
                            {160, 160, 160, 160},
                            {words(10, 12, 6, 7, 4), words(11, 10, 5, 6, 3), words(12, 11, 8, 5, 2),
                             words(13, 13, 5, 6, 1)}};
  const RoundPlan plan = MakeZen()->Rounds(sizes, {4, 2});
  ASSERT_EQ(plan.rounds.size(), 2u);
  const Round& push = plan.rounds[0];
  EXPECT_EQ(push.messages, 3u);
  EXPECT_EQ(push.bytes, 13u * 8);
  EXPECT_EQ(push.node_bytes, 13u * 8);  // into node 0; 11 elements leave it
  EXPECT_EQ(push[Work::kHash], 20u);
  EXPECT_EQ(push[Work::kAdd], 250u);        // a server's list
  EXPECT_EQ(push[Work::kMerge], 10u + 12);  // rank 0; the others 19, 19, 20
  // Heads of 8 bytes and 8 bytes a sum: 40, 32, 24 and 16 bytes of a server.
  const Round& pull = plan.rounds[1];
  EXPECT_EQ(pull.messages, 6u);
  EXPECT_EQ(pull.bytes, 3u * 40);
  EXPECT_EQ(pull.node_bytes, 2u * (40 + 32));  // out of node 0, to two ranks
  EXPECT_EQ(plan.per_rank[0], (Traffic{9, 9, 80 + 3 * 40, 96 + 32 + 24 + 16}));
  EXPECT_EQ(plan.per_rank[3], (Traffic{9, 9, 104 + 3 * 16, 104 + 40 + 32 + 24}));
  EXPECT_EQ(plan.sums, 10u);
  EXPECT_EQ(plan.served, (std::vector<std::uint64_t>{22, 19, 19, 20}));
}

// --- the model's expectations ---

// The bytes that a rank receives on average, by element.
double ReceivedByElement(const RoundPlan& plan, std::size_t elements) {
  double bytes = 0;
  for (const Traffic& rank : plan.per_rank) bytes += static_cast<double>(rank.bytes_received);
  return bytes / static_cast<double>(plan.per_rank.size()) / static_cast<double>(elements);
}

TEST(ZenExpected, BytesAreThoseOfTheSpecification) {
  const struct {
    double density;
    int ranks;
    double bytes;
  } specified[] = {{0.001, 8, 0.144}, {0.01, 8, 0.450}, {0.01, 16, 0.749},
                   {0.05, 8, 1.64},   {0.1, 8, 2.80},   {0.1, 16, 3.92}};
  constexpr std::size_t kElements = 10'000'000;
  for (const auto& [density, ranks, bytes] : specified) {
    const auto kept = static_cast<std::size_t>(density * kElements);
    const auto received = [&](const Options& options, const OverlapModel& overlap) {
      const auto zen = MakeZen(options);
      return ReceivedByElement(ExpectedRounds(*zen, {kElements, kept, 0}, {ranks, 1}, overlap),
                               kElements);
    };
    EXPECT_NEAR(received(Choice("index_form", "bitmap"), {}), bytes, bytes * 0.0035) << density;
    // The closed form, apart from the headers: (P - 1) / P (8 k + 4 gamma k + n / 8).
    const double p = ranks;
    const double sums = OverlapModel{}.Union(density, static_cast<std::size_t>(ranks));
    EXPECT_NEAR(received(Choice("index_form", "bitmap"), {}),
                (p - 1) / p * (8 * density + 4 * sums + 0.125), 2e-5);
    const double indices = (p - 1) / p * (8 * density + 8 * sums);
    EXPECT_NEAR(received(Choice("index_form", "coo"), {}), indices, 2e-5);
    EXPECT_NEAR(received({}, {}), std::min(indices, (p - 1) / p * (8 * density + 4 * sums + 0.125)),
                2e-5);
    // If all ranks select the same, the servers have as many sums as a rank has elements.
    EXPECT_NEAR(received(Choice("index_form", "coo"), {.theta = 1}), (p - 1) / p * 16 * density,
                2e-5);
  }
}

TEST(ZenExpected, BytesAreThoseOfARun) {
  constexpr std::size_t kElements = 100'000;
  const Sent sent = Integers(8, kElements, 1000, 5);
  const Topology topology{8, 1};
  const auto zen = MakeZen();
  const auto outcomes = RunExchanges(*zen, {sent})[0];
  double bytes = 0;
  for (const Outcome& each : outcomes) bytes += static_cast<double>(each.traffic.bytes_received);
  EXPECT_NEAR(bytes / 8 / kElements, 0.450, 0.450 * 0.01);
  const RoundPlan expected = ExpectedRounds(*zen, {kElements, 1000, 0}, topology);
  const RoundPlan run = ExpectCounted(*zen, sent, 0, outcomes, topology);
  for (std::size_t round = 0; round < 2; ++round) {  // of the busiest rank
    ExpectClose(expected.rounds[round].bytes, run.rounds[round].bytes, 0.04);
  }
  ExpectClose(*expected.sums, *run.sums, 0.005);
}

// A quarter of the selected elements lies in the first eighth: twice the mean.
TEST(ZenExpected, SkewIsWhatRangesHaveAndAHashHasNot) {
  constexpr std::size_t kElements = 80'000;
  std::mt19937 random(6);
  Sent sent{"skewed", kElements, 800, {}};
  for (int rank = 0; rank < 8; ++rank) {
    SparseVector own;
    while (own.size() < 800) {
      const bool first = random() % 7 == 0;  // and an eighth of the others
      own[static_cast<std::uint32_t>(random() % (first ? kElements / 8 : kElements))] = 1;
    }
    sent.by_rank.push_back(std::move(own));
  }
  double skew = 0;  // with which a model has such a largest region
  while (OverlapModel{0, skew}.LargestRegion(8) < 2) skew += 0.001;
  const auto largest_in = [&](const char* balance, bool model) {
    const auto zen = MakeZen(Choice("balance", balance));
    const auto outcomes = RunExchanges(*zen, {sent})[0];
    ExchangeSizes sizes = RecordedSizes(*zen, sent, 0, outcomes);
    if (model) {
      sizes.seen.clear();
      zen->Expect({0, skew}, {8, 1}, sizes);
    }
    std::uint64_t most = 0;
    for (const auto& seen : sizes.seen) most = std::max(most, ZenSizes::Of(seen).in);
    return static_cast<double>(most);
  };
  EXPECT_NEAR(largest_in("ranges", false), 7 * 200, 7 * 200 * 0.05);
  EXPECT_NEAR(largest_in("ranges", true), 7 * 200, 7 * 200 * 0.01);
  EXPECT_NEAR(largest_in("hash", false), 7 * 100, 7 * 100 * 0.12);
  EXPECT_NEAR(largest_in("hash", true), 700 + std::sqrt(2 * 700 * std::log(8.0)), 1);
}

TEST(ZenExpected, TwoLevelsAreThoseOfARun) {
  constexpr std::size_t kElements = 100'000;
  const Sent sent = Integers(8, kElements, 2000, 7);
  const Topology topology{8, 4};
  const auto zen = MakeZen({{"node_first", true}});
  const auto outcomes = RunExchanges(*zen, {sent}, 4)[0];
  const RoundPlan run = ExpectCounted(*zen, sent, 0, outcomes, topology);
  const RoundPlan expected = ExpectedRounds(*zen, {kElements, 2000, 0}, topology);
  ASSERT_EQ(expected.rounds.size(), run.rounds.size());
  for (std::size_t i = 0; i < run.rounds.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectClose(expected.rounds[i].bytes, run.rounds[i].bytes, 0.06);
    ExpectClose(expected.rounds[i].node_bytes, run.rounds[i].node_bytes, 0.06);
    ExpectClose(expected.rounds[i][Work::kMerge], run.rounds[i][Work::kMerge], 0.06);
  }
}

}  // namespace
}  // namespace sparfuse::testing

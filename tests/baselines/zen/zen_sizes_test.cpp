// Tests the rounds of Zen by hand, and what a model expects of it against the specification's bytes
// and against runs.
#include "baselines/zen/zen_sizes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/baselines/zen/zen_runs.hpp"

namespace sparfuse::testing {
namespace {

using baselines::ZenSizes;

// Four ranks, two a node; numbers that are not alike.
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
  EXPECT_EQ(push.node_bytes, 13u * 8);  // into node 0; 11 leave it
  EXPECT_EQ(push[Work::kHash], 20u);
  EXPECT_EQ(push[Work::kAdd], 250u);        // a server's list
  EXPECT_EQ(push[Work::kMerge], 10u + 12);  // rank 0; the others 19, 19, 20
  // Heads of 8 bytes and 8 a sum: 40, 32, 24, 16 bytes of a server.
  const Round& pull = plan.rounds[1];
  EXPECT_EQ(pull.messages, 6u);
  EXPECT_EQ(pull.bytes, 3u * 40);
  EXPECT_EQ(pull.node_bytes, 2u * (40 + 32));  // out of node 0, to two ranks
  EXPECT_EQ(plan.per_rank[0], (Traffic{9, 9, 80 + 3 * 40, 96 + 32 + 24 + 16}));
  EXPECT_EQ(plan.per_rank[3], (Traffic{9, 9, 104 + 3 * 16, 104 + 40 + 32 + 24}));
  EXPECT_EQ(plan.sums, 10u);
  EXPECT_EQ(plan.served, (std::vector<std::uint64_t>{22, 19, 19, 20}));
}

// --- what a model expects ---

// Bytes that a rank receives on average, by element.
double ReceivedByElement(const RoundPlan& plan, std::size_t elements) {
  double bytes = 0;
  for (const Traffic& rank : plan.per_rank) bytes += static_cast<double>(rank.bytes_received);
  return bytes / static_cast<double>(plan.per_rank.size()) / static_cast<double>(elements);
}

TEST(ZenExpected, BytesAreThoseOfTheSpecification) {
  struct Golden {
    double density;
    int ranks;
    double bytes;
  };
  constexpr std::size_t kElements = 10'000'000;
  for (const auto& [density, ranks, bytes] : std::vector<Golden>{{0.001, 8, 0.144},
                                                                 {0.01, 8, 0.450},
                                                                 {0.01, 16, 0.749},
                                                                 {0.05, 8, 1.64},
                                                                 {0.1, 8, 2.80},
                                                                 {0.1, 16, 3.92}}) {
    const auto kept = static_cast<std::size_t>(density * kElements);
    const Topology topology{ranks, 1};
    const auto received = [&](const Options& options, const OverlapModel& overlap) {
      const auto zen = MakeZen(options);
      const std::vector<std::uint64_t> payloads(static_cast<std::size_t>(ranks), 8 * kept);
      return ReceivedByElement(
          zen->Rounds(ExpectedSizes(*zen, {kElements, kept, 0}, payloads, overlap, topology),
                      topology),
          kElements);
    };
    EXPECT_NEAR(received(Choice("index_form", "bitmap"), {}), bytes, bytes * 0.0035) << density;
    // The closed form, to the headers: (P - 1) / P (8 k + 4 gamma k + n / 8).
    const double p = ranks;
    const double sums = OverlapModel{}.Union(density, static_cast<std::size_t>(ranks));
    EXPECT_NEAR(received(Choice("index_form", "bitmap"), {}),
                (p - 1) / p * (8 * density + 4 * sums + 0.125), 2e-5);
    const double indices = (p - 1) / p * (8 * density + 8 * sums);
    EXPECT_NEAR(received(Choice("index_form", "coo"), {}), indices, 2e-5);
    EXPECT_NEAR(received({}, {}), std::min(indices, (p - 1) / p * (8 * density + 4 * sums + 0.125)),
                2e-5);
    // Where all select the same, servers have as many sums as a rank has elements.
    EXPECT_NEAR(received(Choice("index_form", "coo"), {.theta = 1}), (p - 1) / p * 16 * density,
                2e-5);
  }
}

TEST(ZenExpected, BytesAreThoseOfARun) {
  constexpr std::size_t kElements = 100'000;
  const Sent sent = RandomSent(8, kElements, 1000, 5);
  const Topology topology{8, 1};
  const auto zen = MakeZen();
  const auto outcomes = RunExchanges(*zen, {sent})[0];
  double bytes = 0;
  for (const Outcome& each : outcomes) bytes += static_cast<double>(each.traffic.bytes_received);
  EXPECT_NEAR(bytes / 8 / kElements, 0.450, 0.450 * 0.01);
  const ExchangeSizes recorded = RecordedSizes(*zen, sent, 0, outcomes);
  const RoundPlan expected = zen->Rounds(
      ExpectedSizes(*zen, {kElements, 1000, 0}, recorded.payload_bytes, {}, topology), topology);
  const RoundPlan run = zen->Rounds(recorded, topology);
  for (std::size_t round = 0; round < 2; ++round) {  // of the busiest rank
    const auto busiest = static_cast<double>(run.rounds[round].bytes);
    EXPECT_NEAR(static_cast<double>(expected.rounds[round].bytes), busiest, 0.04 * busiest);
  }
  EXPECT_NEAR(static_cast<double>(*expected.sums), static_cast<double>(*run.sums),
              0.005 * static_cast<double>(*run.sums));
}

// A quarter of what is selected lies in the first eighth: twice the mean.
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
  double skew = 0;  // for which a model has such a largest region
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
  const Sent sent = RandomSent(8, kElements, 2000, 7);
  const Topology topology{8, 4};
  const auto zen = MakeZen({{"node_first", true}});
  const auto outcomes = RunExchanges(*zen, {sent}, 4)[0];
  const ExchangeSizes recorded = RecordedSizes(*zen, sent, 0, outcomes);
  const RoundPlan run = zen->Rounds(recorded, topology);
  const RoundPlan expected = zen->Rounds(
      ExpectedSizes(*zen, {kElements, 2000, 0}, recorded.payload_bytes, {}, topology), topology);
  ASSERT_EQ(expected.rounds.size(), run.rounds.size());
  for (std::size_t i = 0; i < run.rounds.size(); ++i) {
    const auto bytes = static_cast<double>(run.rounds[i].bytes);
    EXPECT_NEAR(static_cast<double>(expected.rounds[i].bytes), bytes, 0.06 * bytes) << i;
    const auto node = static_cast<double>(run.rounds[i].node_bytes);
    EXPECT_NEAR(static_cast<double>(expected.rounds[i].node_bytes), node, 0.06 * node) << i;
    const auto merged = static_cast<double>(run.rounds[i][Work::kMerge]);
    EXPECT_NEAR(static_cast<double>(expected.rounds[i][Work::kMerge]), merged, 0.06 * merged) << i;
  }
}

}  // namespace
}  // namespace sparfuse::testing

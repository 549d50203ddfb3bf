// Tests the rounds of a two-level all-gather: by hand, and against a simulation of the algorithm
// that passes on names of payloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "core/collective/algorithms.hpp"
#include "core/cost/cost_model.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

// The result of passing on sets of payloads between ranks, with the sums that the rounds must have.
struct Played {
  std::vector<std::set<int>> has;  // [ranks] the origins of a rank's payloads
  std::vector<Traffic> per_rank;
  std::vector<std::uint64_t> into_node;
  std::uint64_t bytes[2] = {};   // by level: the busiest rank's, summed over steps
  std::uint64_t node_bytes = 0;  // between nodes: the busiest node's
};

std::uint64_t BytesOf(const std::set<int>& payloads, const std::vector<std::uint64_t>& bytes) {
  std::uint64_t sum = 0;
  for (const int each : payloads) sum += bytes[static_cast<std::size_t>(each)];
  return sum;
}

// One step: every rank sends its last received payloads to the next rank of its ring.
void Step(const Topology& topology, const std::vector<std::uint64_t>& bytes, bool between,
          std::vector<std::set<int>>& last, Played& played) {
  const int local = topology.ranks_per_node;
  std::vector<std::uint64_t> out(static_cast<std::size_t>(topology.nodes()));
  std::uint64_t busiest = 0;
  std::vector<std::set<int>> got(last.size());
  for (int rank = 0; rank < topology.ranks; ++rank) {
    const int to =
        between ? (rank + local) % topology.ranks : rank / local * local + (rank + 1) % local;
    const auto from = static_cast<std::size_t>(rank);
    const auto at = static_cast<std::size_t>(to);
    const std::uint64_t sent = BytesOf(last[from], bytes);
    got[at] = last[from];
    for (const int each : last[from]) {
      EXPECT_TRUE(played.has[at].insert(each).second) << "payload " << each << " came twice";
    }
    played.per_rank[from] += {1, 0, sent, 0};
    played.per_rank[at] += {0, 1, 0, sent};
    busiest = std::max(busiest, sent);
    if (between) {
      out[static_cast<std::size_t>(topology.NodeOf(rank))] += sent;
      played.into_node[static_cast<std::size_t>(topology.NodeOf(to))] += sent;
    }
  }
  played.bytes[between ? 0 : 1] += busiest;
  played.node_bytes += std::ranges::max(out);
  last = got;
}

Played Play(const Topology& topology, const std::vector<std::uint64_t>& bytes) {
  Played played;
  played.per_rank.resize(bytes.size());
  played.into_node.resize(static_cast<std::size_t>(topology.nodes()));
  for (int rank = 0; rank < topology.ranks; ++rank) played.has.push_back({rank});
  std::vector<std::set<int>> last = played.has;
  for (int step = 0; step + 1 < topology.nodes(); ++step) {
    Step(topology, bytes, true, last, played);
  }
  last = played.has;
  for (int step = 0; step + 1 < topology.ranks_per_node; ++step) {
    Step(topology, bytes, false, last, played);
  }
  return played;
}

TEST(TwoLevelAllGather, AllRanksEndWithAllAndNodesGetNothingTwice) {
  std::mt19937 random(3);
  for (const Topology& topology :
       std::vector<Topology>{{4, 2}, {32, 8}, {6, 3}, {6, 2}, {5, 1}, {7, 7}, {24, 4}, {1, 1}}) {
    for (const std::uint64_t most : {0, 1, 1000}) {
      std::vector<std::uint64_t> bytes(static_cast<std::size_t>(topology.ranks));
      for (std::uint64_t& each : bytes) each = most == 0 ? 0 : random() % most;
      const Played played = Play(topology, bytes);
      const RoundPlan plan = TwoLevelAllGatherRounds(bytes, topology);
      const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
      for (int rank = 0; rank < topology.ranks; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        EXPECT_EQ(played.has[r].size(), bytes.size());
        EXPECT_EQ(plan.per_rank[r], played.per_rank[r]) << rank << " of " << topology.ranks;
      }
      std::uint64_t rounds_of[2] = {}, node_bytes = 0;
      for (const Round& round : plan.rounds) {
        rounds_of[round.link == LinkClass::kInterNode ? 0 : 1] += round.bytes;
        node_bytes += round.node_bytes;
      }
      EXPECT_EQ(rounds_of[0], played.bytes[0]);
      EXPECT_EQ(rounds_of[1], played.bytes[1]);
      EXPECT_EQ(node_bytes, played.node_bytes);
      // The minimum: a node receives only the payloads that its own ranks lack.
      for (int node = 0; node < topology.nodes(); ++node) {
        const auto first = bytes.begin() + node * topology.ranks_per_node;
        EXPECT_EQ(
            played.into_node[static_cast<std::size_t>(node)],
            total - std::accumulate(first, first + topology.ranks_per_node, std::uint64_t{0}));
      }
    }
  }
}

// Two nodes of two. Payloads of 10 and 20 cross against 30 and 40 at once: 30 and 70 bytes over the
// nodes' cards. Then ranks exchange columns of 40 and 60 bytes.
TEST(TwoLevelAllGather, TwoNodesOfTwoByHand) {
  const std::vector<std::uint64_t> bytes = {10, 20, 30, 40};
  const RoundPlan plan = TwoLevelAllGatherRounds(bytes, {4, 2});
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.rounds[0].repeat, 1u);
  EXPECT_EQ(plan.rounds[0].bytes, 40u);
  EXPECT_EQ(plan.rounds[0].node_bytes, 70u);
  EXPECT_EQ(plan.rounds[1].link, LinkClass::kIntraNode);
  EXPECT_EQ(plan.rounds[1].bytes, 60u);
  EXPECT_EQ(plan.per_rank[0], (Traffic{2, 2, 10 + 40, 30 + 60}));
  EXPECT_EQ(plan.per_rank[3], (Traffic{2, 2, 40 + 60, 20 + 40}));
}

// Four nodes of eight ranks with 1 MB each: three steps of 8 MB over every card, seven of 4 MB
// within nodes. At 1 GB/s between nodes and 2 GB/s within, that is 24 + 14 ms, and 3 * 10 + 7 * 1
// us.
TEST(TwoLevelAllGather, FourNodesOfEightByHand) {
  const Topology topology{32, 8};
  const std::vector<std::uint64_t> bytes(32, 1'000'000);
  const RoundPlan plan = TwoLevelAllGatherRounds(bytes, topology);
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.rounds[0].repeat, 3u);
  EXPECT_EQ(plan.rounds[0].node_bytes, 24'000'000u);
  EXPECT_EQ(plan.rounds[1].repeat, 7u);
  EXPECT_EQ(plan.rounds[1].bytes, 28'000'000u);
  EXPECT_EQ(plan.per_rank[5], (Traffic{10, 10, 31'000'000, 31'000'000}));

  CostModel cost;
  cost.links = {LinkCost::FromAlphaBeta(1e-6, 1 / 2e9), LinkCost::FromAlphaBeta(10e-6, 1 / 1e9)};
  const CostModel::Phases phases = cost.PhasesOf(plan);
  EXPECT_NEAR(phases.latency_seconds, 37e-6, 1e-12);
  EXPECT_NEAR(phases.on_links(), 38e-3, 1e-9);
  EXPECT_NEAR(phases.alone(), 38e-3 + 37e-6, 1e-9);
}

TEST(TwoLevelAllGather, RefusesNodesThatAreNotFull) {
  testing::ExpectError(FailureKind::kUnsupported, {"5 ranks, ranks_per_node 2"}, [&] {
    (void)TwoLevelAllGatherRounds(std::vector<std::uint64_t>(5, 1), {5, 2});
  });
}

// Only a collective that stands for a library's all-gather follows the cluster.
TEST(TwoLevelAllGather, IsOfWhatStandsForALibrary) {
  const ExchangeSizes sizes = SizesOf(std::vector<std::uint64_t>(8, 800));
  const Topology topology{8, 4};
  const auto rounds = [&](const char* name, AllGatherBy by) {
    return ModelledRounds(*CoreCollective(name), sizes, topology, by).rounds.size();
  };
  EXPECT_EQ(rounds("sparse-allgather", AllGatherBy::kRing), 1u);
  EXPECT_EQ(rounds("sparse-allgather", AllGatherBy::kTwoLevel), 2u);
  for (const char* other : {"ring-allreduce", "shared-indices-allreduce"}) {
    EXPECT_EQ(rounds(other, AllGatherBy::kRing), rounds(other, AllGatherBy::kTwoLevel)) << other;
  }
}

}  // namespace
}  // namespace sparfuse

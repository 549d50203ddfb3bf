// Tests the exchange through parameter servers: its rounds by hand, and runs of many partitions
// against these rounds. The laws of every collective are in
// tests/baselines/collective_conformance_test.
#include <gtest/gtest.h>

#include "core/collective/collective.hpp"
#include "core/cost/cost_model.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

std::unique_ptr<Collective> Make(const Options& options) {
  for (const CollectiveDescriptor& each : CoreCollectives()) {
    if (each.name == "parameter-server") return MakeCollective(each, options);
  }
  return nullptr;
}

Options With(std::int64_t partition_bytes, bool node_first) {
  return {{"partition_bytes", partition_bytes}, {"node_first", node_first}};
}

RoundPlan RoundsOf(const Options& options, std::size_t elements, const Topology& topology) {
  return Make(options)->Rounds(
      SizesOf(std::vector<std::uint64_t>(static_cast<std::size_t>(topology.ranks), 4 * elements)),
      topology);
}

// The shares of a partition differ in size, down to no elements.
TEST(ParameterServer, ManyPartitionsAddUpAndCountAsPlanned) {
  for (const Topology& topology :
       std::vector<Topology>{{1, 1}, {2, 1}, {3, 1}, {4, 2}, {6, 3}, {8, 4}, {4, 4}, {6, 2}}) {
    for (const bool node_first : {true, false}) {
      for (const std::int64_t partition_bytes : {4, 28, 404}) {
        SCOPED_TRACE(std::to_string(topology.ranks) + " ranks, " +
                     std::to_string(topology.ranks_per_node) + " a node, node_first " +
                     std::to_string(node_first) + ", " + std::to_string(partition_bytes));
        const auto collective = Make(With(partition_bytes, node_first));
        constexpr std::size_t kElements = 101;
        const RoundPlan plan = RoundsOf(With(partition_bytes, node_first), kElements, topology);
        RunRanks(topology.ranks, topology.ranks_per_node, kDeadline, [&](ProgressLoop& loop) {
          std::vector<float> data(kElements);
          for (std::size_t i = 0; i < kElements; ++i) {
            data[i] = static_cast<float>((loop.rank() + 1) * (i % 97));
          }
          const Traffic counted = SumCounted(loop, *collective, data);
          const int ranks = topology.ranks;
          for (std::size_t i = 0; i < kElements; ++i) {
            ASSERT_EQ(data[i], static_cast<float>(ranks * (ranks + 1) / 2 * (i % 97)));
          }
          EXPECT_EQ(counted, plan.per_rank[static_cast<std::size_t>(loop.rank())]);
        });
      }
    }
  }
}

// 8 floats on two nodes of two ranks. A rank sends half of them to the other rank of its node. Of
// the 4 floats that it sums, it sends 2 to the other node and gets 2 back. Then it sends its half.
TEST(ParameterServer, OnePartitionByHand) {
  const RoundPlan plan = RoundsOf({}, 8, {4, 2});
  ASSERT_EQ(plan.rounds.size(), 4u);
  const LinkClass links[] = {LinkClass::kIntraNode, LinkClass::kInterNode, LinkClass::kInterNode,
                             LinkClass::kIntraNode};
  const std::uint64_t bytes[] = {16, 8, 8, 16};
  const std::uint64_t of_node[] = {0, 16, 16, 0};
  const std::uint64_t added[] = {4, 2, 0, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    const Round& round = plan.rounds[i];
    EXPECT_EQ(round.repeat, 1u);
    EXPECT_EQ(round.messages, 1u);
    EXPECT_EQ(round.link, links[i]) << i;
    EXPECT_EQ(round.bytes, bytes[i]) << i;
    EXPECT_EQ(round.node_bytes, of_node[i]) << i;
    EXPECT_EQ(round[Work::kAdd], added[i]) << i;
  }
  EXPECT_EQ(plan.per_rank[2], (Traffic{4, 4, 48, 48}));
}

// Three partitions of 4 floats on two ranks: the halves of one partition are pulled while the
// halves of the next are pushed.
TEST(ParameterServer, PullsOfOnePartitionGoBesidePushesOfTheNext) {
  const RoundPlan plan = RoundsOf(With(16, true), 12, {2, 1});
  ASSERT_EQ(plan.rounds.size(), 3u);
  EXPECT_EQ(plan.rounds[0].bytes, 8u);
  EXPECT_EQ(plan.rounds[1].repeat, 2u);
  EXPECT_EQ(plan.rounds[1].messages, 2u);
  EXPECT_EQ(plan.rounds[1].bytes, 2 * 16u);
  EXPECT_EQ(plan.rounds[2].bytes, 8u);
  EXPECT_EQ(plan.per_rank[0].bytes_sent, 48u);  // as in a ring: 2 * 12 * 1/2 floats
}

// A node of eight ranks sends as much as a lone rank, not eight times as much.
TEST(ParameterServer, RanksOfANodeAddUpBeforeTheyPush) {
  const auto over_cards = [](bool node_first) {
    std::uint64_t bytes = 0;
    for (const Round& round : RoundsOf(With(1'000'000'000, node_first), 64'000, {32, 8}).rounds) {
      bytes += round.node_bytes;
    }
    return bytes;
  };
  EXPECT_EQ(over_cards(true), 2u * 4 * 64'000 * 3 / 4);
  EXPECT_EQ(over_cards(false), 8u * over_cards(true));
}

// Servers on hosts of their own: a node pushes and pulls its whole gradient. Both run at once,
// except for the first and last partition, since the network has both directions. With two servers
// for four nodes, each server carries twice a node's bytes.
TEST(ParameterServer, DedicatedServersByHand) {
  const auto seconds = [](std::int64_t servers, std::int64_t partition_bytes) {
    Options options = With(partition_bytes, true);
    options["dedicated"] = true;
    options["servers"] = servers;
    CostModel cost;
    cost.links.fill(LinkCost::FromAlphaBeta(0, 1e-9));
    return cost.PhasesOf(RoundsOf(options, 1'000'000, {4, 1})).on_links();
  };
  EXPECT_NEAR(seconds(0, 4'000'000), 8e-3, 1e-9);
  EXPECT_NEAR(seconds(4, 400'000), 4.4e-3, 1e-9);
  EXPECT_NEAR(seconds(2, 400'000), 8.8e-3, 1e-9);
  EXPECT_NEAR(seconds(8, 400'000), 4.4e-3, 1e-9);  // limited by the workers' own cards
}

TEST(ParameterServer, ModelsOfManyRanksAreQuick) {
  const Options options = With(4'096'000, true);
  const RoundPlan plan = RoundsOf(options, 800'000'000, {1024, 8});
  EXPECT_LE(plan.rounds.size(), 8u);
}

TEST(ParameterServer, DedicatedServersAreNotRun) {
  const auto collective = Make({{"dedicated", true}});
  RunRanks(2, 1, kDeadline, [&](ProgressLoop& loop) {
    std::vector<float> data(4);
    ExpectError(FailureKind::kUnsupported, {"mode = \"modelled\""},
                [&] { SumCounted(loop, *collective, data); });
  });
}

}  // namespace
}  // namespace sparfuse::testing

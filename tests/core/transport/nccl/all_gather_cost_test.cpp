// Tests the costs of both all-gathers by hand, and the choice between them.
#include <gtest/gtest.h>

#include <vector>

#include "core/transport/nccl/nccl.hpp"

namespace sparfuse {
namespace {

// Round numbers: start-ups of 1 us and 10 us, 1 ns and 10 ns a byte, 2 us a message.
constexpr AllGatherLinks kLinks{{1e-6, 10e-6}, {1e-9, 10e-9}, 2e-6};
constexpr double kTolerance = 1e-15;

using Sizes = std::vector<std::uint64_t>;

// In one node: rank 1 sends the most, 3000 bytes three times; rank 0 receives 6000.
TEST(AllGatherCost, OneNodeByHand) {
  const Sizes sizes{1000, 3000, 2000, 1000};
  const Topology node{4, 4};
  EXPECT_NEAR(GroupedAllGatherSeconds(sizes, node, kLinks), 1e-6 + 3 * 2e-6 + 9000e-9, kTolerance);
  EXPECT_NEAR(PaddedAllGatherSeconds(sizes, node, kLinks), 3 * (1e-6 + 3000e-9), kTolerance);
}

// Two nodes of two: the 4000 bytes of node 0 go to two ranks each, and so do the 3000 of node 1.
// Inside node 0, rank 1 sends 3000 bytes to rank 0.
TEST(AllGatherCost, TwoNodesByHand) {
  const Sizes sizes{1000, 3000, 2000, 1000};
  const Topology nodes{4, 2};
  EXPECT_NEAR(GroupedAllGatherSeconds(sizes, nodes, kLinks), 10e-6 + 3 * 2e-6 + 8000 * 10e-9,
              kTolerance);
  EXPECT_NEAR(PaddedAllGatherSeconds(sizes, nodes, kLinks), 3 * (10e-6 + 3000 * 10e-9), kTolerance);
}

// The last node has one rank: it receives 6000 bytes once; the first node sends 4000 once.
TEST(AllGatherCost, UnevenNodesByHand) {
  EXPECT_NEAR(GroupedAllGatherSeconds(Sizes{1000, 3000, 2000}, Topology{3, 2}, kLinks),
              10e-6 + 2 * 2e-6 + 4000 * 10e-9, kTolerance);
}

TEST(AllGatherCost, OneRankCostsNothing) {
  EXPECT_EQ(GroupedAllGatherSeconds(Sizes{5}, Topology{1, 1}, kLinks), 0);
  EXPECT_EQ(PaddedAllGatherSeconds(Sizes{5}, Topology{1, 1}, kLinks), 0);
}

// If padded, equal large payloads cross between nodes once each. One large payload among empty ones
// would be padded seven times in vain.
TEST(AllGatherCost, EqualPayloadsArePaddedAndUnequalOnesGrouped) {
  const Topology nodes{8, 4};
  EXPECT_EQ(CheaperAllGather(Sizes(8, 1'000'000), nodes, {}), AllGatherAlgorithm::kPadded);
  Sizes one(8, 0);
  one[3] = 1'000'000;
  EXPECT_EQ(CheaperAllGather(one, nodes, {}), AllGatherAlgorithm::kGrouped);
  // One card a node: with either algorithm, M bytes go to or past every rank, and a ring starts up
  // seven times.
  EXPECT_EQ(CheaperAllGather(Sizes(8, 1'000'000), Topology{8, 1}, {}),
            AllGatherAlgorithm::kGrouped);
}

TEST(AllGatherCost, LinkConstantsDecide) {
  const Sizes sizes(4, 1000);
  const Topology node{4, 4};
  AllGatherLinks links = kLinks;
  links.message_seconds = 0;
  EXPECT_EQ(CheaperAllGather(sizes, node, links), AllGatherAlgorithm::kGrouped);
  links.message_seconds = 100e-6;
  EXPECT_EQ(CheaperAllGather(sizes, node, links), AllGatherAlgorithm::kPadded);
}

}  // namespace
}  // namespace sparfuse

// Tests SeCoPa against its published plan (VGG19, PS, 4 nodes), and by its formulas.
#include "baselines/hipress/secopa.hpp"

#include <gtest/gtest.h>

#include "tests/support/errors.hpp"

namespace sparfuse::baselines {
namespace {

constexpr auto kPs = SecopaTopology::kServers;
constexpr auto kRing = SecopaTopology::kRing;

SecopaDecision Whole(int partitions) { return {false, partitions}; }
SecopaDecision Compressed(int partitions) { return {true, partitions}; }

TEST(Secopa, DecidesAsThePublishedPlanOfFourServers) {
  for (const std::size_t elements : {64u, 1000u, 1728u, 4096u, 36864u, 147456u, 589824u}) {
    EXPECT_EQ(SecopaDecide(kPs, 4, elements), Whole(4)) << elements;
  }
  EXPECT_EQ(SecopaDecide(kPs, 4, 1179648), Compressed(2));
  for (const std::size_t elements : {2359296u, 4096000u, 16777216u, 102760448u}) {
    EXPECT_EQ(SecopaDecide(kPs, 4, elements), Compressed(4)) << elements;
  }
}

TEST(Secopa, OfEightAndSixteenServers) {
  EXPECT_EQ(SecopaDecide(kPs, 8, 1179648), Whole(8));
  EXPECT_EQ(SecopaDecide(kPs, 8, 2359296), Compressed(3));
  EXPECT_EQ(SecopaDecide(kPs, 8, 4096000), Compressed(4));
  EXPECT_EQ(SecopaDecide(kPs, 8, 16777216), Compressed(8));
  EXPECT_EQ(SecopaDecide(kPs, 16, 2359296), Whole(16));
  EXPECT_EQ(SecopaDecide(kPs, 16, 4096000), Compressed(6));
  EXPECT_EQ(SecopaDecide(kPs, 16, 16777216), Compressed(12));
  EXPECT_EQ(SecopaDecide(kPs, 16, 102760448), Compressed(16));
}

TEST(Secopa, RingsCutIntoAsManyPartitionsAsNodes) {
  for (const int nodes : {4, 8}) {
    EXPECT_EQ(SecopaDecide(kRing, nodes, 589824), Whole(nodes));
    EXPECT_EQ(SecopaDecide(kRing, nodes, 1179648), Compressed(nodes));
  }
  EXPECT_EQ(SecopaDecide(kRing, 16, 1179648), Whole(16));
  EXPECT_EQ(SecopaDecide(kRing, 16, 2359296), Compressed(16));
}

TEST(Secopa, OtherNumbersOfNodesHaveNoConstants) {
  testing::ExpectIn("world_size = 5: expected 4, 8 or 16",
                    testing::ErrorOf([] { SecopaDecide(kPs, 5, 1000); }));
}

}  // namespace
}  // namespace sparfuse::baselines

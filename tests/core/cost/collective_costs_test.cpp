// Tests the closed formulas of dense collectives: by hand, by their limits, and against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/cost/collective_choice.hpp"
#include "tests/core/cost/hops.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

// 1 us and 10^10 bytes a second within nodes, 10 us and 10^9 bytes a second between them.
CollectiveLinks SimpleLinks(int cards = 1) {
  return {.hops = {{{1e10, 1e-6}, {1e9, 1e-5}}}, .cards_per_node = cards};
}

// A node of H100s with one network card of 400 Gb/s each: NVLink at 450 GB/s a direction.
CollectiveLinks H100() { return {.hops = {{{450e9, 3.4e-6}, {50e9, 14e-6}}}, .cards_per_node = 8}; }

struct Named {
  std::string name;
  CollectiveCost (*cost)(const CollectiveLinks&, const Topology&, double);
};

const std::vector<Named>& All() {
  static const std::vector<Named> all{{"tree", TreeAllReduceCost},
                                      {"two levels", TwoLevelAllReduceCost},
                                      {"broadcast in rings", RingBroadcastCost},
                                      {"broadcast in a tree", TreeBroadcastCost}};
  return all;
}

void ExpectCost(const CollectiveCost& cost, double startup_seconds, double within_seconds,
                double between_seconds, double seconds) {
  EXPECT_NEAR(cost.startup_seconds, startup_seconds, 1e-12);
  EXPECT_NEAR(cost.link_seconds[kWithin], within_seconds, 1e-12);
  EXPECT_NEAR(cost.link_seconds[kBetween], between_seconds, 1e-12);
  EXPECT_NEAR(cost.seconds(), seconds, 1e-12);
}

// Half a buffer each way, twice: 2 us, and 1 MB at 10 GB/s.
TEST(CollectiveCosts, OfTwoRanksInANode) {
  const Topology topology{2, 2};
  ExpectCost(TreeAllReduceCost(SimpleLinks(), topology, 1e6), 2e-6, 1e-4, 0, 1.02e-4);
  ExpectCost(TwoLevelAllReduceCost(SimpleLinks(), topology, 1e6), 2e-6, 1e-4, 0, 1.02e-4);
}

TEST(CollectiveCosts, OfTwoNodesOfTwoRanks) {
  const Topology topology{4, 2};
  ExpectCost(TreeAllReduceCost(SimpleLinks(), topology, 4e6), 22e-6, 4e-4, 4e-3, 4.022e-3);
  ExpectCost(TwoLevelAllReduceCost(SimpleLinks(), topology, 4e6), 22e-6, 4e-4, 4e-3, 4.422e-3);
}

// A chain of four: the middle ranks pass the buffer both up and down.
TEST(CollectiveCosts, OfFourRanksInANode) {
  const Topology topology{4, 4};
  ExpectCost(TreeAllReduceCost(SimpleLinks(), topology, 4e6), 6e-6, 8e-4, 0, 8.06e-4);
  ExpectCost(TwoLevelAllReduceCost(SimpleLinks(), topology, 4e6), 6e-6, 6e-4, 0, 6.06e-4);
}

// A tree over nodes 0, 1, .... Node 0 has one child. Beneath it the nodes lie in order; the top one
// is divisible by the highest power of two.
class Tree {
 public:
  explicit Tree(int nodes) : neighbours_(static_cast<std::size_t>(nodes), 0) {
    Grow(0, 0, nodes, 0);
  }

  int depth() const { return depth_; }
  int neighbours(int node) const { return neighbours_[static_cast<std::size_t>(node)]; }

 private:
  void Grow(int top, int begin, int end, int depth) {
    depth_ = std::max(depth_, depth);
    for (const auto& [first, last] : {std::pair(begin, top), std::pair(top + 1, end)}) {
      if (first >= last) continue;
      int power = 1;
      while ((last - 1) / (2 * power) * 2 * power >= first) power *= 2;
      const int child = (last - 1) / power * power;
      ++neighbours_[static_cast<std::size_t>(top)];
      ++neighbours_[static_cast<std::size_t>(child)];
      Grow(child, first, last, depth + 1);
    }
  }

  std::vector<int> neighbours_;
  int depth_ = 0;
};

// The second tree has the first one's nodes in reverse order or, if their number is odd, shifted by
// one. A node sends half a buffer to each neighbour in each tree.
TEST(CollectiveCosts, TreesOfNodesAreAsDeepAndAsBusyAsTheFormulaSays) {
  for (int nodes = 2; nodes <= 40; ++nodes) {
    const Tree tree(nodes);
    double busiest = 0;
    for (int node = 0; node < nodes; ++node) {
      const int in_second = nodes % 2 == 0 ? nodes - 1 - node : (node + nodes - 1) % nodes;
      busiest = std::max(busiest, 0.5 * (tree.neighbours(node) + tree.neighbours(in_second)));
    }
    const CollectiveCost cost = TreeAllReduceCost(SimpleLinks(), {nodes, 1}, 1e6);
    EXPECT_NEAR(cost.startup_seconds, 2 * tree.depth() * 1e-5, 1e-12) << nodes;
    EXPECT_NEAR(cost.transfer_seconds(), busiest * 1e6 / 1e9, 1e-12) << nodes;
  }
}

// The start-up time of ring steps: in each step a rank passes on the chunk received in the step
// before, after the hop's start-up time.
double StartupOfSteps(const CollectiveLinks& links, const Topology& topology, int steps) {
  std::vector<double> ready(static_cast<std::size_t>(topology.ranks), 0.0);
  for (int step = 0; step < steps; ++step) {
    const std::vector<double> before = ready;
    for (int rank = 0; rank < topology.ranks; ++rank) {
      const int previous = (rank + topology.ranks - 1) % topology.ranks;
      const double came = before[static_cast<std::size_t>(previous)] +
                          links[topology.LinkBetween(previous, rank)].startup_seconds;
      double& at = ready[static_cast<std::size_t>(rank)];
      at = std::max(at, came);
    }
  }
  return *std::max_element(ready.begin(), ready.end());
}

TEST(CollectiveCosts, RingStartsAsASimulationOfItsSteps) {
  const CollectiveLinks links = SimpleLinks();
  for (int ranks = 2; ranks <= 12; ++ranks) {
    for (int ranks_per_node = 1; ranks_per_node <= ranks; ++ranks_per_node) {
      const Topology topology{ranks, ranks_per_node};
      EXPECT_NEAR(RingBroadcastCost(links, topology, 1e6).startup_seconds,
                  StartupOfSteps(links, topology, ranks - 1), 1e-12)
          << ranks << " ranks, ranks_per_node " << ranks_per_node;
    }
  }
}

// A ring all-reduce: 2(P-1) steps, and 2(P-1)/P of the bytes over each hop.
double RingSeconds(const CollectiveLinks& links, const Topology& topology, double bytes) {
  return StartupOfSteps(links, topology, 2 * (topology.ranks - 1)) +
         2.0 * (topology.ranks - 1) / topology.ranks *
             RingBroadcastCost(links, topology, bytes).transfer_seconds();
}

TEST(CollectiveCosts, HugeBuffersRunAtTheSlowestHop) {
  const double bytes = 1e12;
  const double seconds = RingBroadcastCost(SimpleLinks(), {32, 4}, bytes).seconds();
  EXPECT_NEAR(seconds, bytes / 1e9, 1e-6 * seconds);
  // With twelve cards a node, the hops within nodes are the slower ones.
  const double within = RingBroadcastCost(SimpleLinks(12), {32, 4}, bytes).seconds();
  EXPECT_NEAR(within, bytes / 1e10, 1e-4 * within);
}

TEST(CollectiveCosts, OneRankOrNoBytesTakeNoTime) {
  for (const Named& formula : All()) {
    EXPECT_EQ(formula.cost({}, {1, 4}, 1e6), CollectiveCost{}) << formula.name;
    EXPECT_EQ(formula.cost(SimpleLinks(), {8, 4}, 0), CollectiveCost{}) << formula.name;
  }
}

TEST(CollectiveCosts, TimeFollowsBytesRatesAndCards) {
  for (const Named& formula : All()) {
    for (const Topology topology : {Topology{2, 1}, Topology{8, 8}, Topology{12, 4}}) {
      double before = 0;
      for (double bytes = 1; bytes < 1e11; bytes *= 3) {
        const double seconds = formula.cost(SimpleLinks(), topology, bytes).seconds();
        EXPECT_GT(seconds, before) << formula.name << " of " << bytes;
        before = seconds;
        for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
          CollectiveLinks faster = SimpleLinks();
          faster[link].bytes_per_second *= 1.5;
          EXPECT_LE(formula.cost(faster, topology, bytes).seconds(), seconds) << formula.name;
        }
        EXPECT_LE(formula.cost(SimpleLinks(2), topology, bytes).seconds(), seconds) << formula.name;
      }
    }
  }
}

// A collective of two levels is a ring if one level is empty.
TEST(CollectiveCosts, TwoLevelsOfWhichOneIsEmptyAreARing) {
  for (const Topology topology : {Topology{6, 1}, Topology{6, 6}}) {
    EXPECT_NEAR(TwoLevelAllReduceCost(SimpleLinks(2), topology, 1e7).seconds(),
                RingSeconds(SimpleLinks(2), topology, 1e7), 1e-12);
  }
}

// Two levels have fewer hops in a row but move additional bytes within nodes. They gain if start-up
// times dominate: with many nodes and few bytes.
TEST(CollectiveCosts, TwoLevelsGainOnManyNodesAndLoseOnManyBytes) {
  const CollectiveLinks links{.hops = {{{1e10, 3e-6}, {1e10, 1e-5}}}, .cards_per_node = 1};
  const auto gain = [&](int nodes, double bytes) {
    const Topology topology{8 * nodes, 8};
    return RingSeconds(links, topology, bytes) -
           TwoLevelAllReduceCost(links, topology, bytes).seconds();
  };
  EXPECT_GT(gain(64, 4e6), 0);
  EXPECT_LT(gain(2, 4e6), 0);
  EXPECT_LT(gain(64, 1e8), 0);
}

TEST(CollectiveCosts, TreeWinsWithFewBytesAndManyRanks) {
  const Topology topology{128, 8};
  EXPECT_LT(TreeAllReduceCost(H100(), topology, 1e4).seconds(),
            RingSeconds(H100(), topology, 1e4) / 4);
  EXPECT_GT(TreeAllReduceCost(H100(), topology, 1e11).seconds(),
            RingSeconds(H100(), topology, 1e11));
}

TEST(CollectiveCosts, RefusesWhatIsOutOfRange) {
  const auto message = [](const CollectiveLinks& links, const Topology& topology, double bytes) {
    return testing::ErrorOf([&] { All().front().cost(links, topology, bytes); });
  };
  EXPECT_SAYS(message(SimpleLinks(), {0, 1}, 1), "ranks is 0; expected at least 1");
  EXPECT_SAYS(message(SimpleLinks(), {4, 0}, 1), "ranks_per_node is 0");
  EXPECT_SAYS(message(SimpleLinks(0), {4, 2}, 1), "cards_per_node is 0");
  EXPECT_SAYS(message(SimpleLinks(), {4, 2}, -1), "bytes is -1");
  CollectiveLinks links = SimpleLinks();
  links[LinkClass::kInterNode].bytes_per_second = 0;
  EXPECT_SAYS(message(links, {4, 2}, 1), "bytes_per_second of inter_node is 0");
  EXPECT_EQ(message(links, {4, 4}, 1), "no error");  // there is no hop of that class
  links = SimpleLinks();
  links[LinkClass::kIntraNode].startup_seconds = -1;
  EXPECT_SAYS(message(links, {4, 2}, 1), "startup_seconds of intra_node is -1");
}

TEST(CollectiveCosts, TwoLevelsRefuseUnequalNodes) {
  for (const Named& formula : All()) {
    const bool two_levels = formula.name.find("two levels") != std::string::npos;
    const std::string message = testing::ErrorOf(
        [&] {
          formula.cost(SimpleLinks(), {6, 4}, 1e6);
        },
        FailureKind::kUnsupported);
    EXPECT_EQ(message.find("6 ranks, ranks_per_node 4") != std::string::npos, two_levels)
        << formula.name << ": " << message;
  }
}

}  // namespace
}  // namespace sparfuse

// Tests the estimates of NCCL's tuner: against its own logs, by hand, and by laws.
#include "core/cost/collective_choice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/core/cost/hops.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

constexpr auto kAllReduce = NcclCollective::kAllReduce;
constexpr auto kAllGather = NcclCollective::kAllGather;

CollectiveLinks Links(double within_rate, double between_rate, int cards) {
  return {.hops = {{{within_rate, 0}, {between_rate, 0}}}, .cards_per_node = cards};
}

// Nodes with eight network cards of 400 Gb/s.
NcclMachine NcclH100() {
  return {.links = Links(450e9, 50e9, 8),
          .within = NcclHop::kNvlink,
          .cards = NcclCards::kHopper,
          .channels = 24,
          .ll128 = true};
}

// GPUs on a bus without peer access, and one network card of 10 Gb/s.
NcclMachine Turing() {
  return {.links = Links(6e9, 1.25e9, 1), .within = NcclHop::kPcie, .channels = 2};
}

using ByName = std::map<std::string, CollectiveCost, std::less<>>;

ByName EstimatesOf(NcclCollective collective, const NcclMachine& machine, const Topology& topology,
                   double bytes, const NcclConstants& constants) {
  ByName by_name;
  for (const NcclEstimate& estimate :
       NcclEstimates(collective, machine, topology, bytes, constants)) {
    by_name[std::string(estimate.name())] = estimate.cost;
  }
  return by_name;
}

// NVIDIA/nccl#754 logs an all-gather of "33.3/ 0.8", "52.0/ 0.0", "105.6/ 3.2" us and GB/s. These
// are the latencies of 16 ranks on four nodes without NVLink. A ring of 3 GB/s gives 3 * 16/15.
TEST(NcclEstimates, AreThoseOfALogOfAnAllGather) {
  NcclMachine machine = Turing();
  machine.links = Links(3e9, 3e9, 1);
  machine.ll128 = true;  // NCCL prints its latency even if it is not allowed
  const double bytes = 1e6;
  const ByName ring = EstimatesOf(kAllGather, machine, {16, 4}, bytes, kNccl2_8);
  EXPECT_NEAR(ring.at("ring/ll").startup_seconds, 33.3e-6, 1e-10);
  EXPECT_NEAR(ring.at("ring/ll128").startup_seconds, 52.0e-6, 1e-10);
  EXPECT_NEAR(ring.at("ring/simple").startup_seconds, 105.6e-6, 1e-10);
  EXPECT_NEAR(bytes / ring.at("ring/ll").transfer_seconds(), 0.8e9, 1e3);
  EXPECT_NEAR(bytes / ring.at("ring/simple").transfer_seconds(), 3.2e9, 1e3);
}

// NVIDIA/nccl#1453 logs "16 Bytes -> Algo 0 proto 0 time 25.201847" (tree, LL; microseconds) on
// three nodes of eight H100 with NCCL 2.22.3. A simple tree explains the digits behind 25.2 us.
TEST(NcclEstimates, AreThoseOfALogOfATree) {
  NcclMachine machine = NcclH100();
  machine.simple_tree = true;
  const NcclEstimate chosen = NcclChoice(kAllReduce, machine, {24, 8}, 16, kNccl2_20);
  EXPECT_EQ(chosen.name(), "tree/ll");
  EXPECT_NEAR(chosen.cost.seconds(), 25.201847e-6, 5e-12);
}

// A ring: 8.4 us, 14 hops of 3.4 us, 175 MB at 450 GB/s. A tree: 14 hops of 28 us, 414 GB/s.
TEST(NcclEstimates, OfANodeOfH100) {
  const ByName all = EstimatesOf(kAllReduce, NcclH100(), {8, 8}, 1e8, kNccl2_20);
  EXPECT_NEAR(all.at("ring/simple").seconds(), 56e-6 + 175e6 / 450e9, 1e-12);
  EXPECT_NEAR(all.at("ring/ll128").seconds(), (14 + 14 * 1.9) * 1e-6 + 175e6 / 414e9, 1e-12);
  EXPECT_NEAR(all.at("ring/ll").seconds(), (6.6 + 14 * 0.6) * 1e-6 + 175e6 / 87.7e9, 1e-12);
  EXPECT_NEAR(all.at("tree/simple").startup_seconds, 392e-6, 1e-12);
  EXPECT_GT(all.at("tree/simple").transfer_seconds(), 2e8 / 414e9);
  EXPECT_EQ(NcclChoice(kAllReduce, NcclH100(), {8, 8}, 1e8, kNccl2_20).name(), "ring/simple");
}

// 222 hops within nodes, 32 between them. On a processor where three postings take longer than the
// 3.4 us of a hop within a node, the hop takes as long as the postings.
TEST(NcclEstimates, OfSixteenNodesOfH100) {
  const Topology topology{128, 8};
  const double bytes = 1e10;
  const auto ring = [&](NcclProcessor processor) {
    NcclMachine machine = NcclH100();
    machine.processor = processor;
    return EstimatesOf(kAllReduce, machine, topology, bytes, kNccl2_20).at("ring/simple");
  };
  const CollectiveCost cost = ring(NcclProcessor::kIntel);
  EXPECT_NEAR(cost.startup_seconds, 1.4 * (8.4 + 222 * 3.4 + 32 * 14) * 1e-6, 1e-12);
  EXPECT_NEAR(ring(NcclProcessor::kAmd).startup_seconds, 1.4 * (8.4 + 222 * 6 + 32 * 14) * 1e-6,
              1e-12);
  EXPECT_NEAR(cost.transfer_seconds(), 2 * 127.0 / 128 * bytes / 400e9, 1e-12);
  // Eight network cards are slower than NVLink: they are always busy, and NVLink 400/450 of the
  // time.
  EXPECT_DOUBLE_EQ(cost.link_seconds[kBetween], cost.transfer_seconds());
  EXPECT_DOUBLE_EQ(cost.link_seconds[kWithin], cost.transfer_seconds() * 400 / 450);
  EXPECT_EQ(NcclChoice(kAllReduce, NcclH100(), topology, bytes, kNccl2_20).name(), "ring/simple");
  EXPECT_EQ(NcclChoice(kAllReduce, NcclH100(), topology, 8, kNccl2_20).name(), "tree/ll");
}

// Eight nodes of four: 62 hops, 14 or 16 of them between nodes. The plateau begins at 128 KiB with
// NCCL 2.8 and at 4 KiB with 2.20.
TEST(NcclEstimates, OfEightNodesWithoutNvlink) {
  const Topology topology{32, 4};
  const auto startup_us = [&](const NcclConstants& constants, double bytes) {
    return EstimatesOf(kAllReduce, Turing(), topology, bytes, constants)
               .at("ring/simple")
               .startup_seconds *
           1e6;
  };
  EXPECT_NEAR(startup_us(kNccl2_8, 131071), 8.4 + 48 * 5.7 + 14 * 9.6, 1e-9);
  EXPECT_NEAR(startup_us(kNccl2_8, 131072), 1.9 * (8.4 + 48 * 5.7 + 14 * 9.6), 1e-9);
  EXPECT_NEAR(startup_us(kNccl2_20, 4095), 8.4 + 46 * 5.7 + 16 * 14, 1e-9);
  EXPECT_NEAR(startup_us(kNccl2_20, 4096), 1.9 * (8.4 + 46 * 5.7 + 16 * 14), 1e-9);
  const ByName small = EstimatesOf(kAllReduce, Turing(), topology, 8, kNccl2_8);
  EXPECT_NEAR(small.at("tree/ll").startup_seconds, (4.4 + 2 * (3 * 1.8 + 3 * 5.0)) * 1e-6, 1e-12);
  EXPECT_NEAR(small.at("ring/ll").startup_seconds, (3.6 + 48 * 1.8 + 14 * 2.7) * 1e-6, 1e-12);
}

// One rank a node: LL128 has 0.7 of a ring's rate, and the tree is a simple tree. Two nodes have
// two hops in all, both between nodes.
TEST(NcclEstimates, OfLoneRanks) {
  const double bytes = 1 << 30;
  const ByName two = EstimatesOf(kAllReduce, NcclH100(), {2, 1}, bytes, kNccl2_20);
  EXPECT_NEAR(two.at("ring/simple").seconds(), 1.4 * (8.4 + 2 * 14) * 1e-6 + bytes / 400e9, 1e-12);
  EXPECT_NEAR(two.at("ring/ll128").seconds(), (14 + 2 * 4) * 1e-6 + bytes / 280e9, 1e-12);
  EXPECT_NEAR(two.at("tree/simple").seconds(), 2 * 28e-6 + 2 * bytes / (368e9 * 0.85), 1e-12);
  const ByName four = EstimatesOf(kAllReduce, NcclH100(), {4, 2}, bytes, kNccl2_20);
  EXPECT_NEAR(four.at("ring/ll128").transfer_seconds(), 1.5 * bytes / 368e9, 1e-12);
  EXPECT_NEAR(four.at("tree/simple").transfer_seconds(), 2 * bytes / 368e9, 1e-12);
  EXPECT_EQ(two.at("ring/simple").link_seconds[kWithin], 0);
}

// In one node, LL gathers at a third of a ring's rate, not a quarter. A tree with LL128 has 7/9 of
// its rate, not 120/128.
TEST(NcclEstimates, OfOneNodeAndOfTwoWithoutAFasterLimit) {
  NcclMachine machine = NcclH100();
  machine.links = Links(90e9, 90e9, 1);
  const double bytes = 1 << 30;
  const auto rate = [&](NcclCollective collective, const Topology& topology, const char* name,
                        double share) {
    return share * bytes /
           EstimatesOf(collective, machine, topology, bytes, kNccl2_20).at(name).transfer_seconds();
  };
  EXPECT_NEAR(rate(kAllGather, {8, 8}, "ring/ll", 7.0 / 8), 30e9, 1);
  EXPECT_NEAR(rate(kAllGather, {16, 8}, "ring/ll", 15.0 / 16), 22.5e9, 1);
  EXPECT_NEAR(rate(kAllReduce, {8, 8}, "ring/ll", 14.0 / 8), 22.5e9, 1);
  EXPECT_NEAR(rate(kAllReduce, {8, 8}, "tree/ll128", 2), 90e9 * 0.92 * 7 / 9, 1);
  EXPECT_NEAR(rate(kAllReduce, {16, 8}, "tree/ll128", 2), 90e9 * 0.92 * 120 / 128, 1);
}

// A tree with Simple has half its rate at 256 KiB and 512 KiB, and its full rate at 1 GiB.
TEST(NcclEstimates, TreeHasAPartOfItsRateBySize) {
  for (const auto& [bytes, part] : std::vector<std::pair<double, double>>{
           {64, 0.9}, {262144, 0.5}, {524288, 0.5}, {4194304, 0.7}, {1 << 30, 1.0}}) {
    const CollectiveCost tree =
        EstimatesOf(kAllReduce, NcclH100(), {8, 8}, bytes, kNccl2_20).at("tree/simple");
    EXPECT_NEAR(tree.transfer_seconds(), 2 * bytes / (414e9 * part), 1e-12) << bytes;
  }
}

TEST(NcclEstimates, NameWhatNcclHas) {
  const auto names = [](NcclCollective collective, const NcclMachine& machine) {
    std::vector<std::string> found;
    for (const NcclEstimate& estimate :
         NcclEstimates(collective, machine, {32, 4}, 1e6, kNccl2_20)) {
      found.emplace_back(estimate.name());
    }
    return found;
  };
  EXPECT_EQ(names(kAllReduce, NcclH100()),
            (std::vector<std::string>{"tree/ll", "tree/ll128", "tree/simple", "ring/ll",
                                      "ring/ll128", "ring/simple"}));
  EXPECT_EQ(names(kAllReduce, Turing()),
            (std::vector<std::string>{"tree/ll", "tree/simple", "ring/ll", "ring/simple"}));
  EXPECT_EQ(names(kAllGather, Turing()), (std::vector<std::string>{"ring/ll", "ring/simple"}));
}

TEST(NcclEstimates, OneRankOrNoBytesTakeNoTime) {
  for (const NcclCollective collective : {kAllReduce, kAllGather}) {
    EXPECT_EQ(NcclChoice(collective, NcclH100(), {1, 8}, 1e6, kNccl2_20).cost, CollectiveCost{});
    EXPECT_EQ(NcclChoice(collective, NcclH100(), {16, 8}, 0, kNccl2_20).cost, CollectiveCost{});
  }
}

// Several nodes, one node, one rank a node, and a last node with fewer ranks.
std::vector<Topology> Topologies() { return {{2, 2}, {8, 8}, {2, 1}, {6, 1}, {22, 8}, {256, 8}}; }

TEST(NcclChoice, IsTheFastestAndTakesNoLessTimeForMoreBytes) {
  for (const NcclConstants* constants : {&kNccl2_8, &kNccl2_20}) {
    for (const NcclMachine& machine : {NcclH100(), Turing()}) {
      for (const Topology& topology : Topologies()) {
        for (const NcclCollective collective : {kAllReduce, kAllGather}) {
          ByName before;
          double chosen_before = 0;
          for (int i = 0; i <= 12 * 36; ++i) {
            const double bytes = std::exp2(i / 12.0);
            const ByName all = EstimatesOf(collective, machine, topology, bytes, *constants);
            const NcclEstimate chosen =
                NcclChoice(collective, machine, topology, bytes, *constants);
            for (const auto& [name, cost] : all) {
              EXPECT_LE(chosen.cost.seconds(), cost.seconds());
              if (i > 0) {
                EXPECT_GT(cost.seconds(), before.at(name).seconds())
                    << constants->version << " " << name << " of " << bytes << " bytes, "
                    << topology.ranks << " ranks";
              }
            }
            EXPECT_EQ(all.at(std::string(chosen.name())), chosen.cost);
            EXPECT_GT(chosen.cost.seconds(), chosen_before);
            before = all;
            chosen_before = chosen.cost.seconds();
          }
        }
      }
    }
  }
}

TEST(NcclChoice, TakesNoMoreTimeWithFasterLinks) {
  for (const NcclConstants* constants : {&kNccl2_8, &kNccl2_20}) {
    for (const NcclMachine& machine : {NcclH100(), Turing()}) {
      for (const Topology& topology : Topologies()) {
        for (double bytes = 1; bytes < 1e11; bytes *= 7) {
          const ByName before = EstimatesOf(kAllReduce, machine, topology, bytes, *constants);
          for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
            NcclMachine faster = machine;
            faster.links[link].bytes_per_second *= 1.3;
            for (const auto& [name, cost] :
                 EstimatesOf(kAllReduce, faster, topology, bytes, *constants)) {
              EXPECT_LE(cost.seconds(), before.at(name).seconds()) << name;
            }
          }
        }
      }
    }
  }
}

// The caller sets the start-up times of the network.
TEST(NcclChoice, FollowsTheConstantsGiven) {
  NcclConstants slow = kNccl2_8;
  slow.hop_us[static_cast<std::size_t>(NcclHop::kNetwork)] = {{{40, 40, 40}, {40, 40, 40}}};
  const NcclEstimate chosen = NcclChoice(kAllReduce, Turing(), {32, 4}, 8, slow);
  EXPECT_EQ(chosen.name(), "tree/ll");
  EXPECT_NEAR(chosen.cost.startup_seconds, (4.4 + 2 * (3 * 1.8 + 3 * 40)) * 1e-6, 1e-12);
}

// Sets start-up times of links in microseconds, within nodes and between them.
NcclMachine WithStartups(NcclMachine machine, double within_us, double between_us) {
  machine.links[LinkClass::kIntraNode].startup_seconds = within_us * 1e-6;
  machine.links[LinkClass::kInterNode].startup_seconds = between_us * 1e-6;
  return machine;
}

// A ring's step with LL128 takes 1.9 us over NVLink, 2.5 us over PCIe and 4 us between nodes.
TEST(NcclCost, IsTheTunersOnLinksLikeItsOwn) {
  for (const NcclMachine& machine :
       {WithStartups(NcclH100(), 1.9, 4), WithStartups(Turing(), 2.5, 4)}) {
    for (const Topology& topology : Topologies()) {
      for (double bytes = 1; bytes < 1e11; bytes *= 7) {
        const CollectiveCost cost = NcclCost(kAllReduce, machine, topology, bytes, kNccl2_20);
        const CollectiveCost tuner =
            NcclChoice(kAllReduce, machine, topology, bytes, kNccl2_20).cost;
        EXPECT_NEAR(cost.startup_seconds, tuner.startup_seconds, 1e-12);
        EXPECT_EQ(cost.link_seconds, tuner.link_seconds);
      }
    }
  }
}

// Hops of the network take 36 us more than the tuner assumes, hops within nodes 2 us more. A tree
// with LL crosses 6 of each. A ring with Simple crosses 14 and 48, on the plateau times 1.9.
TEST(NcclCost, ChoiceStaysAndItsHopsTakeWhatTheLinksTake) {
  const Topology topology{32, 4};
  const NcclMachine machine = WithStartups(Turing(), 4.5, 40);
  for (const auto& [bytes, name, further_us] : std::vector<std::tuple<double, std::string, double>>{
           {8, "tree/ll", 6 * 1.8 * 2 + 6 * 36}, {1e9, "ring/simple", 1.9 * (48 * 2 + 14 * 36)}}) {
    const NcclEstimate chosen = NcclChoice(kAllReduce, machine, topology, bytes, kNccl2_8);
    const CollectiveCost cost = NcclCost(kAllReduce, machine, topology, bytes, kNccl2_8);
    EXPECT_EQ(chosen.name(), name);
    EXPECT_NEAR(cost.startup_seconds - chosen.cost.startup_seconds, further_us * 1e-6, 1e-12);
    EXPECT_EQ(cost.link_seconds, chosen.cost.link_seconds);
  }
  // No hop takes negative time: each of the 6 hops of LL's tree keeps 5 - 4 us.
  EXPECT_NEAR(
      NcclCost(kAllReduce, WithStartups(Turing(), 0, 0), topology, 8, kNccl2_8).startup_seconds,
      (4.4 + 6 * 1) * 1e-6, 1e-15);
}

TEST(NcclChoice, RefusesWhatIsOutOfRange) {
  const auto message = [](const NcclMachine& machine, const Topology& topology, double bytes) {
    return testing::ErrorOf([&] { NcclChoice(kAllReduce, machine, topology, bytes, kNccl2_20); });
  };
  EXPECT_SAYS(message(NcclH100(), {8, 8}, -1), "bytes is -1");
  EXPECT_SAYS(message(NcclH100(), {0, 8}, 1), "ranks is 0");
  NcclMachine machine = NcclH100();
  machine.channels = 0;
  EXPECT_SAYS(message(machine, {8, 8}, 1), "channels is 0; expected at least 1");
  machine = NcclH100();
  machine.within = NcclHop::kNetwork;
  EXPECT_SAYS(message(machine, {8, 8}, 1), "expected kNvlink or kPcie");
  machine = NcclH100();
  machine.links[LinkClass::kInterNode].bytes_per_second = -2;
  EXPECT_SAYS(message(machine, {16, 8}, 1), "bytes_per_second of inter_node is -2");
}

// 16 ranks on four nodes; links of 4e9 and 1e9 bytes/s, start-ups of 1 and 10 us.
TEST(Broadcasts, TakeTheirHopsAndTheirBytes) {
  CollectiveLinks links = Links(4e9, 1e9, 1);
  links[LinkClass::kIntraNode].startup_seconds = 1e-6;
  links[LinkClass::kInterNode].startup_seconds = 10e-6;
  const Topology topology{16, 4};
  const CollectiveCost ring = RingBroadcastCost(links, topology, 1e6);
  EXPECT_NEAR(ring.startup_seconds, 11 * 1e-6 + 4 * 10e-6, 1e-12);
  EXPECT_NEAR(ring.transfer_seconds(), 1e-3, 1e-12);  // pipelined, at the slower link's rate
  const CollectiveCost tree = TreeBroadcastCost(links, topology, 1e6);
  EXPECT_NEAR(tree.startup_seconds, 2 * 1e-6 + 2 * 10e-6, 1e-12);
  // Two rounds within a node, then two in which all four ranks of a node send over its card.
  EXPECT_NEAR(tree.transfer_seconds(), 2 * 0.25e-3 + 2 * 4e-3, 1e-12);
  links.cards_per_node = 2;
  EXPECT_NEAR(RingBroadcastCost(links, topology, 1e6).transfer_seconds(), 0.5e-3, 1e-12);
  EXPECT_NEAR(TreeBroadcastCost(links, {5, 1}, 1e6).startup_seconds, 3 * 10e-6, 1e-12);
  for (const CollectiveCost& nothing :
       {RingBroadcastCost(links, {1, 1}, 1e6), TreeBroadcastCost(links, topology, 0)})
    EXPECT_EQ(nothing, CollectiveCost());
}

}  // namespace
}  // namespace sparfuse

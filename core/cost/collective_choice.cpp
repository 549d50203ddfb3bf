#include "core/cost/collective_choice.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse {

namespace {

constexpr auto kWithin = static_cast<std::size_t>(LinkClass::kIntraNode);
constexpr auto kBetween = static_cast<std::size_t>(LinkClass::kInterNode);

void RequireAtLeast(int least, int value, const std::string& name) {
  SPARFUSE_REQUIRE(value >= least, "cost of a collective: ", name, " is ", value,
                   "; expected at least ", least);
}

// Returns the ranks of a full node.
int LargestNode(const Topology& topology) {
  return std::min(topology.ranks, topology.ranks_per_node);
}

bool HasHops(const Topology& topology, LinkClass link) {
  return link == LinkClass::kInterNode ? topology.nodes() > 1 : LargestNode(topology) > 1;
}

void Check(const CollectiveLinks& links, const Topology& topology, double bytes) {
  RequireAtLeast(1, topology.ranks, "ranks");
  RequireAtLeast(1, topology.ranks_per_node, "ranks_per_node");
  RequireAtLeast(1, links.cards_per_node, "cards_per_node");
  SPARFUSE_REQUIRE(bytes >= 0 && std::isfinite(bytes), "cost of a collective: bytes is ", bytes,
                   "; expected at least 0");
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    if (!HasHops(topology, link)) continue;
    const LinkHop& hop = links[link];
    const std::string name(LinkClassName(link));
    SPARFUSE_REQUIRE(hop.bytes_per_second > 0 && std::isfinite(hop.bytes_per_second),
                     "cost of a collective: bytes_per_second of ", name, " is ",
                     hop.bytes_per_second, "; expected above 0");
    SPARFUSE_REQUIRE(hop.startup_seconds >= 0 && std::isfinite(hop.startup_seconds),
                     "cost of a collective: startup_seconds of ", name, " is ", hop.startup_seconds,
                     "; expected at least 0");
  }
}

void RequireEqualNodes(const Topology& topology) {
  if (topology.ranks % LargestNode(topology) != 0) {
    SPARFUSE_THROW(kUnsupported, "cost of a collective in two levels: ", topology.ranks,
                   " ranks, ranks_per_node ", topology.ranks_per_node,
                   "; expected equally many ranks on every node");
  }
}

bool TakesNoTime(const Topology& topology, double bytes) {
  return topology.ranks == 1 || bytes == 0;
}

// Numbers of hops in sequence, by LinkClass.
using HopCounts = std::array<int, kLinkClasses>;

// Returns the hops that a chunk crosses before the last rank of a ring over the ranks in order has
// it; of all chunks, the one that leaves nodes most often.
HopCounts WayAround(const Topology& topology) {
  const int crossings = topology.nodes() > 1 ? topology.nodes() : 0;
  const int left_out_within = crossings == 0 || LargestNode(topology) > 1 ? 1 : 0;
  return {topology.ranks - crossings - left_out_within, crossings - (1 - left_out_within)};
}

// Returns the rate of the slowest link class that a collective uses. Above 0; infinite for one
// rank.
double SlowestRate(const CollectiveLinks& links, const Topology& topology) {
  Check(links, topology, 0);
  double rate = std::numeric_limits<double>::infinity();
  if (HasHops(topology, LinkClass::kIntraNode)) {
    rate = links[LinkClass::kIntraNode].bytes_per_second;
  }
  if (HasHops(topology, LinkClass::kInterNode)) {
    rate = std::min(rate, links.cards_per_node * links[LinkClass::kInterNode].bytes_per_second);
  }
  return rate;
}

// Returns the cost of `of_hop[link]` bytes over each hop of a class. A node's cards share its
// outgoing bytes.
CollectiveCost CostOf(const CollectiveLinks& links, const HopCounts& hops,
                      const std::array<double, kLinkClasses>& of_hop, bool pipelined) {
  CollectiveCost cost;
  cost.pipelined = pipelined;
  for (std::size_t link = 0; link < kLinkClasses; ++link) {
    const LinkHop& hop = links.hops[link];
    if (hops[link] == 0) continue;
    const double rate = hop.bytes_per_second * (link == kBetween ? links.cards_per_node : 1);
    cost.startup_seconds += hops[link] * hop.startup_seconds;
    cost.link_seconds[link] = of_hop[link] / rate;
  }
  return cost;
}

// Returns the hops up one tree of n nodes, or down again. NCCL's trees have a root with one child.
// Below it a node's depth is at most the number of bits of n - 1.
int TreeDepth(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

}  // namespace

CollectiveCost TreeAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes) {
  Check(links, topology, bytes);
  if (TakesNoTime(topology, bytes)) return {};
  const int chain = LargestNode(topology);
  const int nodes = topology.nodes();
  // The buffer goes up and down: out of an end of a chain once, out of its middle on both sides.
  // Each tree carries half the buffer. A node sends the half to its parent and to each child. From
  // four nodes on some have two children in one tree, and none in the other.
  const double of_rank = std::min(chain - 1, 2) * bytes;
  const double of_node = std::min(nodes, 4) / 2.0 * bytes;
  return CostOf(links, {2 * (chain - 1), 2 * TreeDepth(nodes)}, {of_rank, of_node}, true);
}

CollectiveCost TwoLevelAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                     double bytes) {
  Check(links, topology, bytes);
  RequireEqualNodes(topology);
  if (TakesNoTime(topology, bytes)) return {};
  const int local = LargestNode(topology);
  const int nodes = topology.nodes();
  // A ring of n ranks sends (n - 1) / n of a buffer over each hop in one lap.
  const auto of_hop = [bytes](int n) { return 2.0 * (n - 1) / n * bytes; };
  return CostOf(links, {2 * (local - 1), 2 * (nodes - 1)}, {of_hop(local), of_hop(nodes)}, false);
}

CollectiveCost RingBroadcastCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes) {
  Check(links, topology, bytes);
  if (TakesNoTime(topology, bytes)) return {};
  return CostOf(links, WayAround(topology), {bytes, bytes}, true);
}

CollectiveCost TreeBroadcastCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes) {
  Check(links, topology, bytes);
  if (TakesNoTime(topology, bytes)) return {};
  const int local = LargestNode(topology);
  const int within = TreeDepth(local), between = TreeDepth(topology.nodes());
  return CostOf(links, {within, between}, {within * bytes, between * local * bytes}, false);
}

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// Makes a rate per channel that is the same for all cards and numbers of nodes.
constexpr NcclByCards Everywhere(double rate) {
  const NcclByNodes row{rate, rate, rate};
  return {row, row, row};
}

constexpr NcclByCards kRingLl128Of2_20{
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}}};

}  // namespace

// Version 2.8.3 reads the first row for cards later than A100.
constinit const NcclConstants kNccl2_8{
    .version = "2.8.3",
    .base_us = {{{4.4, 4.4, 0}, {3.6, 10.0, 8.4}}},
    .hop_us = {{{{{0.52, 1.25, 28}, {0.47, 1.9, 3.4}}},
                {{{1.0, 1.9, 28}, {1.0, 2.5, 5.7}}},
                {{{5.0, 8.5, 28}, {2.7, 4.0, 9.6}}}}},
    .ll_hop_factor = 1.8,
    .fewer_network_hops = 2,
    .plateau_bytes = 4096,
    .plateau_factor = {1.9, 1.9, 1.9},
    .ring_ll = 1.0 / 4,
    .ring_ll_gather = 1.0 / 3,
    .ring_ll128 = 0.92,
    .ring_ll128_lone = 0.7,
    .tree = 0.92,
    .tree_ll = 1 / 3.8,
    .tree_ll128 = 0.915,
    .tree_ll128_one_node = 7.0 / 9,
    .tree_by_size =
        {{{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
          {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .5, .6, .6, .7, .7, .8, .9, .9, .92, .92},
          {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
           .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}},
    .hop_rate = {kUnlimited, 235, kUnlimited},
    .ll_one_node_rate = {39.0, 87.7, 39.0},
    .ll_nodes_rate = {{{39.0, 20.4}, {22.5, 19.0}}},
    .tree_rate = {{{26.5, 18.5, 10.0}, {24.0, 22.5, 16.0}, {26.5, 18.5, 10.0}}},
    .tree_ll128_rate = Everywhere(16.9),
    .ring_ll128_rate = {{Everywhere(16.9), Everywhere(18.3)}}};

constinit const NcclConstants kNccl2_20{
    .version = "2.20.3",
    .base_us = {{{6.8, 14.0, 0}, {6.6, 14.0, 8.4}}},
    .hop_us = {{{{{0.6, 1.25, 28}, {0.6, 1.9, 3.4}}},
                {{{1.0, 1.9, 28}, {1.0, 2.5, 5.7}}},
                {{{5.0, 8.5, 28}, {2.7, 4.0, 14.0}}}}},
    .post_us = {1.0, 2.0},
    .plateau_bytes_per_channel = 64,
    .plateau_factor = {1.9, 1.4, 1.4},
    .ring_ll = 1.0 / 4,
    .ring_ll_gather = 1.0 / 3,
    .ring_ll128 = 0.92,
    .ring_ll128_lone = 0.7,
    .tree = 0.92,
    .tree_ll = 1 / 3.8,
    .tree_ll128 = 120.0 / 128,
    .tree_ll128_one_node = 7.0 / 9,
    .simple_tree_fraction = 0.85,
    .tree_by_size =
        {{{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
          {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
          {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
           .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}},
    .hop_rate = {kUnlimited, kUnlimited, kUnlimited},
    .ll_one_node_rate = {39.0, 87.7, 87.7},
    .ll_nodes_rate = {{{39.0, 20.4}, {22.5, 19.0}}},
    .tree_rate = {{{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}}},
    .tree_ll128_rate = {{{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}}},
    .ring_ll128_rate = {{kRingLl128Of2_20, kRingLl128Of2_20}}};

namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMicrosecond = 1e-6;

template <typename Enum>
constexpr std::size_t Index(Enum value) {
  return static_cast<std::size_t>(value);
}

// An estimate's inputs, except algorithm and protocol. Rates in 10^9 bytes/s, times in
// microseconds.
struct Asked {
  NcclCollective collective;
  const NcclMachine& machine;
  const NcclConstants& constants;
  int ranks;
  int nodes;
  double bytes;
  double hop_rate;  // of the slowest hop

  bool all_reduce() const { return collective == NcclCollective::kAllReduce; }
  std::size_t cards() const { return Index(machine.cards); }
  std::size_t size_class() const { return static_cast<std::size_t>(std::min(nodes, 3) - 1); }

  double LlRate() const {
    return nodes == 1 ? constants.ll_one_node_rate[cards()]
                      : constants.ll_nodes_rate[Index(machine.processor)][size_class() - 1];
  }
  double ChannelsRate(const NcclByCards& of_channel) const {
    return machine.channels * of_channel[cards()][size_class()];
  }
};

double RingRate(const Asked& asked, NcclProtocol protocol) {
  const NcclConstants& constants = asked.constants;
  switch (protocol) {
    case NcclProtocol::kLl: {
      const bool gather = !asked.all_reduce() && asked.nodes == 1;
      return std::min(asked.LlRate(),
                      asked.hop_rate * (gather ? constants.ring_ll_gather : constants.ring_ll));
    }
    case NcclProtocol::kLl128: {
      const bool lone = asked.ranks < 2 * asked.nodes;
      return std::min(asked.hop_rate * (lone ? constants.ring_ll128_lone : constants.ring_ll128),
                      asked.ChannelsRate(constants.ring_ll128_rate[Index(asked.collective)]));
    }
    case NcclProtocol::kSimple:
      break;
  }
  return asked.hop_rate;
}

// Interpolates between the sizes of the table in log(bytes); constant below them.
double TreeFractionBySize(const Asked& asked, NcclProtocol protocol) {
  const auto& table = asked.constants.tree_by_size[Index(protocol)];
  const auto entry = [&](std::size_t i) { return i < table.size() ? table[i] : 1.0; };
  const double place =
      std::clamp(std::log2(asked.bytes / 64), 0.0, static_cast<double>(table.size()));
  const auto i = static_cast<std::size_t>(place);
  const double beyond = place - static_cast<double>(i);
  return (1 - beyond) * entry(i) + beyond * entry(i + 1);
}

double TreeRate(const Asked& asked, NcclProtocol protocol) {
  const NcclConstants& constants = asked.constants;
  double rate = std::min(asked.hop_rate * constants.tree, asked.ChannelsRate(constants.tree_rate));
  if (protocol == NcclProtocol::kLl) {
    rate = std::min(rate * constants.tree_ll, asked.LlRate());
  } else if (protocol == NcclProtocol::kLl128) {
    rate =
        std::min(rate * (asked.nodes == 1 ? constants.tree_ll128_one_node : constants.tree_ll128),
                 asked.ChannelsRate(constants.tree_ll128_rate));
  }
  if (asked.machine.simple_tree || asked.ranks == asked.nodes) {
    rate *= constants.simple_tree_fraction;
  }
  return rate * TreeFractionBySize(asked, protocol);
}

double RingStartup(const Asked& asked, NcclProtocol protocol) {
  const NcclConstants& constants = asked.constants;
  const auto of = [&](NcclHop hop) {
    return constants.hop_us[Index(hop)][Index(NcclAlgorithm::kRing)][Index(protocol)];
  };
  const bool simple = protocol == NcclProtocol::kSimple;
  const int laps = asked.all_reduce() ? 2 : 1;
  const int hops = laps * (asked.ranks - 1);
  double within = of(asked.machine.within);
  int network_hops = 0;
  if (asked.nodes > 1) {
    if (protocol == NcclProtocol::kLl) within *= constants.ll_hop_factor;
    within = std::max(within, constants.post_us[Index(asked.machine.processor)] * (simple ? 3 : 1));
    network_hops =
        asked.all_reduce() ? 2 * asked.nodes - constants.fewer_network_hops : asked.nodes - 1;
    network_hops = std::min(network_hops, hops);
  }
  const double startup = constants.base_us[Index(NcclAlgorithm::kRing)][Index(protocol)] +
                         (hops - network_hops) * within + network_hops * of(NcclHop::kNetwork);
  const double plateau_bytes =
      asked.ranks *
      (constants.plateau_bytes + constants.plateau_bytes_per_channel * asked.machine.channels);
  const bool on_plateau =
      simple && asked.all_reduce() && asked.nodes > 1 && asked.bytes >= plateau_bytes;
  return on_plateau ? startup * constants.plateau_factor[asked.cards()] : startup;
}

double TreeStartup(const Asked& asked, NcclProtocol protocol) {
  const NcclConstants& constants = asked.constants;
  const auto of = [&](NcclHop hop) {
    return constants.hop_us[Index(hop)][Index(NcclAlgorithm::kTree)][Index(protocol)];
  };
  double within = of(asked.machine.within);
  if (asked.nodes > 1 && protocol == NcclProtocol::kLl) within *= constants.ll_hop_factor;
  // Counts as NCCL does: whole ranks a node, and the logarithm rounded down.
  const int chain = asked.ranks / asked.nodes - 1;
  const int depth = std::bit_width(static_cast<unsigned>(asked.nodes)) - 1;
  return constants.base_us[Index(NcclAlgorithm::kTree)][Index(protocol)] +
         2 * (chain * within + depth * of(NcclHop::kNetwork));
}

CollectiveCost Estimate(const Asked& asked, const Topology& topology, NcclAlgorithm algorithm,
                        NcclProtocol protocol) {
  if (asked.ranks == 1 || asked.bytes == 0) return {};
  const bool ring = algorithm == NcclAlgorithm::kRing;
  // Bytes over each hop, as a share of the buffer.
  const double share =
      ring ? (asked.all_reduce() ? 2.0 : 1.0) * (asked.ranks - 1) / asked.ranks : 2.0;
  const double rate = ring ? RingRate(asked, protocol) : TreeRate(asked, protocol);
  const double transfer_seconds = share * asked.bytes / (rate * kGigabyte);

  CollectiveCost cost;
  cost.pipelined = true;
  cost.startup_seconds =
      (ring ? RingStartup(asked, protocol) : TreeStartup(asked, protocol)) * kMicrosecond;
  const CollectiveLinks& links = asked.machine.links;
  const double slowest = SlowestRate(links, topology);
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    const bool between = link == LinkClass::kInterNode;
    if (between ? asked.nodes == 1 : asked.ranks == asked.nodes) continue;
    const double link_rate = links[link].bytes_per_second * (between ? links.cards_per_node : 1);
    cost.link_seconds[Index(link)] = transfer_seconds * (slowest / link_rate);
  }
  return cost;
}

// Adapts the constants to a machine's links: adds the difference between its hops' start-up times
// and those behind the constants.
NcclConstants OnLinksOf(const NcclMachine& machine, const NcclConstants& constants) {
  NcclConstants here = constants;
  const auto move = [&](NcclHop hop, LinkClass link) {
    const double step_us =
        constants.hop_us[Index(hop)][Index(NcclAlgorithm::kRing)][Index(NcclProtocol::kLl128)];
    const double further_us = machine.links[link].startup_seconds / kMicrosecond - step_us;
    for (NcclByProtocol& by_protocol : here.hop_us[Index(hop)]) {
      for (double& us : by_protocol) us = std::max(0.0, us + further_us);
    }
  };
  move(machine.within, LinkClass::kIntraNode);
  move(NcclHop::kNetwork, LinkClass::kInterNode);
  return here;
}

Asked AskedOf(NcclCollective collective, const NcclMachine& machine, const Topology& topology,
              double bytes, const NcclConstants& constants) {
  SPARFUSE_REQUIRE(bytes >= 0 && std::isfinite(bytes), "choice of NCCL: bytes is ", bytes,
                   "; expected at least 0");
  SPARFUSE_REQUIRE(machine.channels >= 1, "choice of NCCL: channels is ", machine.channels,
                   "; expected at least 1");
  SPARFUSE_REQUIRE(machine.within != NcclHop::kNetwork,
                   "choice of NCCL: within is kNetwork; expected kNvlink or kPcie");
  const double slowest = SlowestRate(machine.links, topology);
  return {collective,
          machine,
          constants,
          topology.ranks,
          topology.nodes(),
          bytes,
          std::min(slowest / kGigabyte, constants.hop_rate[Index(machine.cards)])};
}

}  // namespace

std::string_view NcclEstimate::name() const {
  static constexpr std::string_view kNames[kNcclAlgorithms][kNcclProtocols] = {
      {"tree/ll", "tree/ll128", "tree/simple"}, {"ring/ll", "ring/ll128", "ring/simple"}};
  return kNames[Index(algorithm)][Index(protocol)];
}

std::vector<NcclEstimate> NcclEstimates(NcclCollective collective, const NcclMachine& machine,
                                        const Topology& topology, double bytes,
                                        const NcclConstants& constants) {
  const Asked asked = AskedOf(collective, machine, topology, bytes, constants);
  std::vector<NcclEstimate> estimates;
  for (const NcclAlgorithm algorithm : {NcclAlgorithm::kTree, NcclAlgorithm::kRing}) {
    if (algorithm == NcclAlgorithm::kTree && !asked.all_reduce()) continue;
    for (const NcclProtocol protocol :
         {NcclProtocol::kLl, NcclProtocol::kLl128, NcclProtocol::kSimple}) {
      if (protocol == NcclProtocol::kLl128 && !machine.ll128) continue;
      estimates.push_back({algorithm, protocol, Estimate(asked, topology, algorithm, protocol)});
    }
  }
  return estimates;
}

NcclEstimate NcclChoice(NcclCollective collective, const NcclMachine& machine,
                        const Topology& topology, double bytes, const NcclConstants& constants) {
  const std::vector<NcclEstimate> estimates =
      NcclEstimates(collective, machine, topology, bytes, constants);
  return *std::min_element(estimates.begin(), estimates.end(),
                           [](const NcclEstimate& a, const NcclEstimate& b) {
                             return a.cost.seconds() < b.cost.seconds();
                           });
}

CollectiveCost NcclCost(NcclCollective collective, const NcclMachine& machine,
                        const Topology& topology, double bytes, const NcclConstants& constants) {
  const NcclEstimate chosen = NcclChoice(collective, machine, topology, bytes, constants);
  const NcclConstants here = OnLinksOf(machine, constants);
  return Estimate(AskedOf(collective, machine, topology, bytes, here), topology, chosen.algorithm,
                  chosen.protocol);
}

}  // namespace sparfuse

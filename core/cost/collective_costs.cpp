#include "core/cost/collective_costs.hpp"

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
  SPARFUSE_REQUIRE(value >= least, "cost of a collective: " + name + " is " +
                                       std::to_string(value) + "; expected at least " +
                                       std::to_string(least));
}

// Ranks of a full node.
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
  SPARFUSE_REQUIRE(
      bytes >= 0 && std::isfinite(bytes),
      "cost of a collective: bytes is " + std::to_string(bytes) + "; expected at least 0");
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    if (!HasHops(topology, link)) continue;
    const LinkHop& hop = links[link];
    const std::string name(LinkClassName(link));
    SPARFUSE_REQUIRE(hop.bytes_per_second > 0 && std::isfinite(hop.bytes_per_second),
                     "cost of a collective: bytes_per_second of " + name + " is " +
                         std::to_string(hop.bytes_per_second) + "; expected above 0");
    SPARFUSE_REQUIRE(hop.startup_seconds >= 0 && std::isfinite(hop.startup_seconds),
                     "cost of a collective: startup_seconds of " + name + " is " +
                         std::to_string(hop.startup_seconds) + "; expected at least 0");
  }
}

void RequireEqualNodes(const Topology& topology) {
  if (topology.ranks % LargestNode(topology) != 0) {
    SPARFUSE_THROW(kUnsupported,
                   "cost of a collective in two levels: " + std::to_string(topology.ranks) +
                       " ranks, ranks_per_node " + std::to_string(topology.ranks_per_node) +
                       "; expected nodes that are full");
  }
}

bool TakesNoTime(const Topology& topology, double bytes) {
  return topology.ranks == 1 || bytes == 0;
}

// Of one lap around the ring, from a rank back to itself.
HopCounts Lap(const Topology& topology) {
  const int between = topology.nodes() > 1 ? topology.nodes() : 0;
  return {topology.ranks - between, between};
}

// `laps` laps but for `missing` hops in a row, which lie within a node as far as it has such hops.
HopCounts WayAround(const Topology& topology, int laps, int missing) {
  if (topology.ranks <= 1) return {};
  const HopCounts lap = Lap(topology);
  const int within = topology.nodes() > 1 ? std::min(missing, LargestNode(topology) - 1) : missing;
  return {laps * lap[kWithin] - within, laps * lap[kBetween] - (missing - within)};
}

// Cost where `of_hop[link]` bytes go over the hops of a class. A node's cards share what leaves it.
CollectiveCost CostOf(const CollectiveLinks& links, const HopCounts& hops,
                      const std::array<double, kLinkClasses>& of_hop, int cards, bool pipelined) {
  CollectiveCost cost;
  cost.pipelined = pipelined;
  for (std::size_t link = 0; link < kLinkClasses; ++link) {
    const LinkHop& hop = links.hops[link];
    if (hops[link] == 0) continue;
    const double rate = hop.bytes_per_second * (link == kBetween ? cards : 1);
    cost.startup_seconds += hops[link] * hop.startup_seconds;
    cost.link_seconds[link] = of_hop[link] / rate;
  }
  return cost;
}

CollectiveCost RingCost(const CollectiveLinks& links, const HopCounts& hops, double of_hop,
                        int rings) {
  return CostOf(links, hops, {of_hop, of_hop}, std::min(rings, links.cards_per_node), true);
}

// (n - 1) / n: of a buffer, what a ring of n leads over each hop in one lap.
double AllButOne(int n) { return static_cast<double>(n - 1) / n; }

// Hops up one tree of n nodes, or down again. NCCL's trees have a root with one child, beneath
// which a node lies at the number of bits of n - 1 at most.
int TreeDepth(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

}  // namespace

HopCounts RingAllReduceHops(const Topology& topology) { return WayAround(topology, 2, 2); }

HopCounts RingAllGatherHops(const Topology& topology) { return WayAround(topology, 1, 1); }

double SlowestRate(const CollectiveLinks& links, const Topology& topology, int cards) {
  Check(links, topology, 0);
  RequireAtLeast(1, cards, "cards");
  double rate = std::numeric_limits<double>::infinity();
  if (HasHops(topology, LinkClass::kIntraNode)) {
    rate = links[LinkClass::kIntraNode].bytes_per_second;
  }
  if (HasHops(topology, LinkClass::kInterNode)) {
    rate = std::min(rate, cards * links[LinkClass::kInterNode].bytes_per_second);
  }
  return rate;
}

CollectiveCost RingAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes, int rings) {
  Check(links, topology, bytes);
  RequireAtLeast(1, rings, "rings");
  if (TakesNoTime(topology, bytes)) return {};
  return RingCost(links, RingAllReduceHops(topology), 2 * AllButOne(topology.ranks) * bytes, rings);
}

CollectiveCost TreeAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                 double bytes) {
  Check(links, topology, bytes);
  if (TakesNoTime(topology, bytes)) return {};
  const int chain = LargestNode(topology);
  const int nodes = topology.nodes();
  // The buffer goes up and down: out of an end of a chain once, out of its middle on both sides. Of
  // a tree's half a node sends one to its parent and one to each child: from four nodes on some
  // have two children in one tree, and none in the other.
  const double of_rank = std::min(chain - 1, 2) * bytes;
  const double of_node = std::min(nodes, 4) / 2.0 * bytes;
  return CostOf(links, {2 * (chain - 1), 2 * TreeDepth(nodes)}, {of_rank, of_node},
                links.cards_per_node, true);
}

CollectiveCost TwoLevelAllReduceCost(const CollectiveLinks& links, const Topology& topology,
                                     double bytes) {
  Check(links, topology, bytes);
  RequireEqualNodes(topology);
  if (TakesNoTime(topology, bytes)) return {};
  const int local = LargestNode(topology);
  const int nodes = topology.nodes();
  return CostOf(links, {2 * (local - 1), 2 * (nodes - 1)},
                {2 * AllButOne(local) * bytes, 2 * AllButOne(nodes) * bytes}, links.cards_per_node,
                false);
}

CollectiveCost RingAllGatherCost(const CollectiveLinks& links, const Topology& topology,
                                 double gathered_bytes, int rings) {
  Check(links, topology, gathered_bytes);
  RequireAtLeast(1, rings, "rings");
  if (TakesNoTime(topology, gathered_bytes)) return {};
  return RingCost(links, RingAllGatherHops(topology), AllButOne(topology.ranks) * gathered_bytes,
                  rings);
}

CollectiveCost TwoLevelAllGatherCost(const CollectiveLinks& links, const Topology& topology,
                                     double gathered_bytes) {
  Check(links, topology, gathered_bytes);
  RequireEqualNodes(topology);
  if (TakesNoTime(topology, gathered_bytes)) return {};
  const int local = LargestNode(topology);
  const int nodes = topology.nodes();
  return CostOf(links, {local - 1, nodes - 1},
                {AllButOne(local) * gathered_bytes, AllButOne(nodes) * gathered_bytes},
                links.cards_per_node, false);
}

}  // namespace sparfuse

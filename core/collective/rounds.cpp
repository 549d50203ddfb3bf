#include "core/collective/rounds.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {
namespace {

// Returns the bytes out of or into the busiest node.
std::uint64_t NodeBytes(std::span<const Traffic> of_rank, const Topology& topology) {
  if (topology.ranks_per_node == 1) return 0;
  const std::size_t ranks = of_rank.size();
  const auto per_node = static_cast<std::size_t>(topology.ranks_per_node);
  std::uint64_t most = 0;
  for (std::size_t first = 0; first < ranks; first += per_node) {
    const std::size_t here = std::min(per_node, ranks - first);
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const Traffic& traffic : of_rank.subspan(first, here)) {
      sent += traffic.bytes_sent;
      received += traffic.bytes_received;
    }
    most = std::max(most, std::max(sent, received) * (ranks - here) / (ranks - 1));
  }
  return most;
}

// --- an all-gather in two levels: between nodes, then within each ---

struct Levels {
  std::size_t local;  // ranks of a node
  std::size_t nodes;
};

Levels LevelsOf(const Topology& topology) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  const auto local = static_cast<std::size_t>(std::min(topology.ranks, topology.ranks_per_node));
  if (ranks % local != 0) {
    SPARFUSE_THROW(kUnsupported, "all-gather in two levels: ", topology.ranks,
                   " ranks, ranks_per_node ", topology.ranks_per_node,
                   "; expected equally many ranks on every node");
  }
  return {local, ranks / local};
}

// In every step all payloads of a level are in transit, each from another rank: the largest sets
// the pace.
void AddLevels(const Levels& levels, std::uint64_t of_rank, std::uint64_t of_node,
               std::uint64_t of_column, std::vector<Round>& rounds) {
  const auto [local, nodes] = levels;
  if (nodes > 1) {
    rounds.push_back({.repeat = static_cast<std::uint32_t>(nodes - 1),
                      .bytes = (nodes - 1) * of_rank,
                      .link = LinkClass::kInterNode,
                      .node_bytes = (nodes - 1) * of_node});
  }
  if (local > 1) {
    rounds.push_back({.repeat = static_cast<std::uint32_t>(local - 1),
                      .bytes = (local - 1) * of_column,
                      .link = LinkClass::kIntraNode});
  }
}

}  // namespace

void AddRounds(const RoundPlan& next, RoundPlan& plan) {
  plan.rounds.insert(plan.rounds.end(), next.rounds.begin(), next.rounds.end());
  for (std::size_t rank = 0; rank < plan.per_rank.size(); ++rank) {
    plan.per_rank[rank] += next.per_rank[rank];
  }
}

void AddDirectRounds(std::span<const Traffic> of_rank, std::size_t bucket, const Topology& topology,
                     RoundPlan& plan) {
  const std::size_t others = of_rank.size() - 1;
  if (others == 0) return;
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    bytes = std::max({bytes, of_rank[rank].bytes_sent, of_rank[rank].bytes_received});
    plan.per_rank[rank] += of_rank[rank];
  }
  const std::uint64_t node_bytes = NodeBytes(of_rank, topology);
  // Full buckets, and the rest.
  const std::size_t full = others / bucket;
  const std::size_t rest = others % bucket;
  const auto in_full = [&](std::uint64_t all) { return all * (full * bucket) / others; };
  Round round{.repeat = static_cast<std::uint32_t>(full),
              .messages = static_cast<std::uint32_t>(bucket),
              .bytes = in_full(bytes),
              .link = SlowestLink(topology),
              .node_bytes = in_full(node_bytes)};
  if (full > 0) plan.rounds.push_back(round);
  round.repeat = 1;
  round.messages = static_cast<std::uint32_t>(rest);
  round.bytes = bytes - in_full(bytes);
  round.node_bytes = node_bytes - in_full(node_bytes);
  if (rest > 0) plan.rounds.push_back(round);
}

std::vector<ExchangedTensor> TensorsOf(const ExchangeShape& shape) {
  if (!shape.tensors.empty()) return {shape.tensors.begin(), shape.tensors.end()};
  return {{0, 0, shape.elements, {}}};
}

std::uint64_t BusierWay(const Traffic& of) { return std::max(of.bytes_sent, of.bytes_received); }

Round& AddRound(std::span<const RankMessage> messages, const Topology& topology, RoundPlan& plan) {
  std::vector<Traffic> of_rank(static_cast<std::size_t>(topology.ranks));
  std::vector<Traffic> of_node(static_cast<std::size_t>(topology.nodes()));
  Round round;
  round.link = LinkClass::kIntraNode;
  const auto count = [&](Traffic& from, Traffic& to, std::uint64_t bytes) {
    ++from.messages_sent;
    ++to.messages_received;
    from.bytes_sent += bytes;
    to.bytes_received += bytes;
  };
  for (const auto& [from, to, bytes] : messages) {
    count(of_rank[static_cast<std::size_t>(from)], of_rank[static_cast<std::size_t>(to)], bytes);
    if (topology.LinkBetween(from, to) == LinkClass::kIntraNode) continue;
    round.link = LinkClass::kInterNode;
    count(of_node[static_cast<std::size_t>(topology.NodeOf(from))],
          of_node[static_cast<std::size_t>(topology.NodeOf(to))], bytes);
  }
  round.messages = 0;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    const Traffic& traffic = of_rank[rank];
    round.messages = std::max(round.messages, static_cast<std::uint32_t>(traffic.messages_sent));
    round.bytes = std::max(round.bytes, BusierWay(traffic));
    plan.per_rank[rank] += traffic;
  }
  for (const Traffic& traffic : of_node) {
    round.node_bytes = std::max(round.node_bytes, BusierWay(traffic));
  }
  plan.rounds.push_back(round);
  return plan.rounds.back();
}

void AddEvenTwoLevelAllGatherRounds(std::uint64_t bytes, const Topology& topology,
                                    std::vector<Round>& rounds) {
  const Levels levels = LevelsOf(topology);
  AddLevels(levels, bytes, levels.local * bytes, levels.nodes * bytes, rounds);
}

RoundPlan TwoLevelAllGatherRounds(std::span<const std::uint64_t> bytes, const Topology& topology) {
  const Levels levels = LevelsOf(topology);
  const auto [local, nodes] = levels;
  const std::size_t ranks = local * nodes;
  std::vector<std::uint64_t> of_node(nodes);
  std::vector<std::uint64_t> of_column(local);  // of the ranks of equal local rank
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    of_node[rank / local] += bytes[rank];
    of_column[rank % local] += bytes[rank];
  }
  const std::uint64_t total = std::accumulate(of_node.begin(), of_node.end(), std::uint64_t{0});

  RoundPlan plan;
  AddLevels(levels, std::ranges::max(bytes), std::ranges::max(of_node), std::ranges::max(of_column),
            plan.rounds);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t column = rank % local;
    const std::uint64_t next_node = bytes[(rank + local) % ranks];
    const std::uint64_t next_column = of_column[(column + 1) % local];
    const std::uint64_t messages = nodes - 1 + local - 1;
    plan.per_rank.push_back({messages, messages,
                             (of_column[column] - next_node) + (total - next_column),
                             (of_column[column] - bytes[rank]) + (total - of_column[column])});
  }
  return plan;
}

}  // namespace sparfuse

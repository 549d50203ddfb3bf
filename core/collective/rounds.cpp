#include "core/collective/rounds.hpp"

#include <algorithm>

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

}  // namespace sparfuse

#include "core/collective/message_rounds.hpp"

#include <algorithm>

namespace sparfuse {
namespace {

std::uint64_t BusierWay(const Traffic& of) { return std::max(of.bytes_sent, of.bytes_received); }

}  // namespace

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

// Maps each rank to its node, and each pair of ranks to the class of their link.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sparfuse {

enum class LinkClass : std::uint8_t { kIntraNode, kInterNode };
inline constexpr std::size_t kLinkClasses = 2;
constexpr std::string_view LinkClassName(LinkClass link) {
  return link == LinkClass::kIntraNode ? "intra_node" : "inter_node";
}

// Ranks are numbered node by node: rank r is local rank r % ranks_per_node of node
// r / ranks_per_node. The last node may hold fewer.
struct Topology {
  int ranks = 1;
  int ranks_per_node = 1;

  int nodes() const noexcept { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  int NodeOf(int rank) const noexcept { return rank / ranks_per_node; }
  int LocalRankOf(int rank) const noexcept { return rank % ranks_per_node; }
  LinkClass LinkBetween(int a, int b) const noexcept {
    return NodeOf(a) == NodeOf(b) ? LinkClass::kIntraNode : LinkClass::kInterNode;
  }
  bool operator==(const Topology&) const = default;
};

// The messages and bytes that one rank sent and received, forwarded ones included. A transport's
// headers are not counted. Counts start at construction and are never reset, so that a step's
// traffic is a difference.
struct Traffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;

  Traffic& operator+=(const Traffic& other) {
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    return *this;
  }
  Traffic operator-(const Traffic& other) const {
    return {messages_sent - other.messages_sent, messages_received - other.messages_received,
            bytes_sent - other.bytes_sent, bytes_received - other.bytes_received};
  }
  bool operator==(const Traffic&) const = default;
};
using TrafficByLink = std::array<Traffic, kLinkClasses>;

inline Traffic Total(const TrafficByLink& by_link) {
  Traffic total;
  for (const Traffic& traffic : by_link) total += traffic;
  return total;
}

}  // namespace sparfuse

// Adds up what ranks send over the networks of their nodes in one round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/transport/topology.hpp"

namespace sparfuse::baselines {

class NodeBytes {
 public:
  explicit NodeBytes(const Topology& topology)
      : topology_(topology),
        out_(static_cast<std::size_t>(topology.nodes())),
        in_(static_cast<std::size_t>(topology.nodes())) {}

  void Add(std::size_t from, std::size_t to, std::uint64_t bytes) {
    if (NodeOf(from) == NodeOf(to)) return;
    out_[NodeOf(from)] += bytes;
    in_[NodeOf(to)] += bytes;
  }
  // What a rank sends to all others alike and receives from them.
  void AddEvenly(std::size_t rank, std::uint64_t sent, std::uint64_t received) {
    const auto ranks = static_cast<std::uint64_t>(topology_.ranks);
    const auto node = NodeOf(rank);
    const std::uint64_t begin = node * static_cast<std::uint64_t>(topology_.ranks_per_node);
    const std::uint64_t here = std::min<std::uint64_t>(
        ranks - begin, static_cast<std::uint64_t>(topology_.ranks_per_node));
    if (here == ranks) return;
    out_[node] += sent * (ranks - here) / (ranks - 1);
    in_[node] += received * (ranks - here) / (ranks - 1);
  }
  // Round::node_bytes: out of or into the busiest node; 0 where a node has one rank.
  std::uint64_t most() const {
    if (topology_.ranks_per_node == 1) return 0;
    return std::max(*std::max_element(out_.begin(), out_.end()),
                    *std::max_element(in_.begin(), in_.end()));
  }

 private:
  std::size_t NodeOf(std::size_t rank) const {
    return static_cast<std::size_t>(topology_.NodeOf(static_cast<int>(rank)));
  }

  Topology topology_;
  std::vector<std::uint64_t> out_, in_;
};

}  // namespace sparfuse::baselines

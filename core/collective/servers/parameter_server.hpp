// Describes how parameter servers share a buffer, for the run and for its rounds.
//
// The buffer is cut into partitions. Each partition passes four stages. In every step each stage
// works on a different partition, the first stage ahead of the others:
//
//   reduce      the ranks of a node split the partition; each sums one share (node_first)
//   push        each rank's share is split again among the servers, which sum it
//   pull        the servers return the sums
//   distribute  the ranks of a node exchange their shares
//
// Without machines of their own, the servers are the ranks. With node_first, ranks of equal local
// rank serve one another. The ranks of a node together then push (N - 1) / N of a partition each
// way over the node's network, and pull as much.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "core/base/options.hpp"
#include "core/collective/rounds.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

struct ServerOptions {
  bool node_first = true;
  bool dedicated = false;     // servers have machines of their own
  std::size_t servers = 0;    // number of dedicated servers; 0: one for each node
  std::size_t partition = 0;  // elements, at least 1

  static ServerOptions Of(const Options& resolved);
};

// A run of elements.
struct ServerPart {
  std::size_t begin = 0;
  std::size_t size = 0;

  // The i-th of `parts` parts of this run, as equal as possible; no part is larger than the last.
  ServerPart Of(std::size_t parts, std::size_t i) const {
    const std::size_t from = size * i / parts;
    return {begin + from, size * (i + 1) / parts - from};
  }
};

// Ranks as rows of nodes: `local` ranks split a partition, then `columns` ranks split a share of
// it.
struct ServerGrid {
  std::size_t local = 1;
  std::size_t columns = 1;

  // With node_first: nodes are full.
  static ServerGrid Of(bool node_first, const Topology& topology) {
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    const auto local = std::min(ranks, static_cast<std::size_t>(topology.ranks_per_node));
    return node_first ? ServerGrid{local, ranks / local} : ServerGrid{1, ranks};
  }
  std::size_t ranks() const { return local * columns; }
  std::size_t LocalOf(std::size_t rank) const { return rank % local; }
  std::size_t ColumnOf(std::size_t rank) const { return rank / local; }
  std::size_t RankOf(std::size_t column, std::size_t of_node) const {
    return column * local + of_node;
  }
  // The share of a partition that a rank sums before it pushes.
  ServerPart ShareOf(const ServerPart& partition, std::size_t rank) const {
    return partition.Of(local, LocalOf(rank));
  }
};

enum class ServerStage : std::uint8_t { kReduce, kPush, kPull, kDistribute };
inline constexpr ServerStage kServerStages[] = {ServerStage::kReduce, ServerStage::kPush,
                                                ServerStage::kPull, ServerStage::kDistribute};
inline constexpr std::size_t kServerStageCount = std::size(kServerStages);
constexpr bool IsInNode(ServerStage stage) {
  return stage == ServerStage::kReduce || stage == ServerStage::kDistribute;
}
constexpr bool AddsUp(ServerStage stage) {
  return stage == ServerStage::kReduce || stage == ServerStage::kPush;
}

struct ServerPartitions {
  std::size_t elements = 0;
  std::size_t each = 1;  // elements of every partition but the last

  std::size_t count() const { return (elements + each - 1) / each; }
  ServerPart operator[](std::size_t i) const {
    return {i * each, std::min(each, elements - i * each)};
  }
  std::size_t steps() const { return elements == 0 ? 0 : count() + kServerStageCount - 1; }
  // The partition that is at a stage in a step, if any.
  std::optional<std::size_t> At(ServerStage stage, std::size_t step) const {
    const auto behind = static_cast<std::size_t>(stage);
    if (step < behind || step - behind >= count()) return std::nullopt;
    return step - behind;
  }
};

// Returns the rounds for `elements` floats. Defined in parameter_server_rounds.cpp.
RoundPlan ParameterServerRounds(const ServerOptions& options, std::size_t elements,
                                const Topology& topology);

}  // namespace sparfuse

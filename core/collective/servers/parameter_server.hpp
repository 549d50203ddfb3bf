// Says how a buffer is shared out among parameter servers, for the run and for its rounds.
//
// The buffer is cut into partitions. Each goes through four stages, and in every step each stage
// works on another partition, the first one ahead:
//
//   reduce      the ranks of a node share it out and add up a share each (node_first)
//   push        each rank's share is shared out again among the servers, which add it up
//   pull        the servers give the sums back
//   distribute  the ranks of a node give one another their shares
//
// Servers without machines of their own are the ranks; with node_first those of equal local rank
// are each other's, so that each way over a node's network go (N - 1) / N of a partition to be
// pushed and as much to be pulled, its ranks together.
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
  bool dedicated = false;     // servers on further machines
  std::size_t servers = 0;    // dedicated ones; 0: one for each node
  std::size_t partition = 0;  // elements, at least 1

  static ServerOptions Of(const Options& resolved);
};

// A run of elements.
struct ServerPart {
  std::size_t begin = 0;
  std::size_t size = 0;

  // The i-th of `parts` parts of it, as equal as they can be; the last one is none of the smaller.
  ServerPart Of(std::size_t parts, std::size_t i) const {
    const std::size_t from = size * i / parts;
    return {begin + from, size * (i + 1) / parts - from};
  }
};

// Ranks as rows of nodes: `local` of them share a partition out, then `columns` a share of it.
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
  // What a rank adds up of a partition before it pushes.
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
  std::size_t each = 1;  // of all but the last one

  std::size_t count() const { return (elements + each - 1) / each; }
  ServerPart operator[](std::size_t i) const {
    return {i * each, std::min(each, elements - i * each)};
  }
  std::size_t steps() const { return elements == 0 ? 0 : count() + kServerStageCount - 1; }
  // Which partition is at a stage in a step, if any.
  std::optional<std::size_t> At(ServerStage stage, std::size_t step) const {
    const auto behind = static_cast<std::size_t>(stage);
    if (step < behind || step - behind >= count()) return std::nullopt;
    return step - behind;
  }
};

// parameter_server_rounds.cpp. Of `elements` floats.
RoundPlan ParameterServerRounds(const ServerOptions& options, std::size_t elements,
                                const Topology& topology);

}  // namespace sparfuse

// Gives the rounds of an all-gather in two levels: between nodes, then within each.
#include <algorithm>
#include <numeric>
#include <string>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {

namespace {

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

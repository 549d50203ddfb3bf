#include "harness/systems/rank_pairs.hpp"

#include <cstddef>

namespace sparfuse::harness {

std::vector<std::vector<RankPair>> PhasesOf(const Topology& topology) {
  std::vector<std::vector<RankPair>> phases(3);
  const int in_node = topology.ranks_per_node;
  for (int node = 0; node < topology.nodes(); ++node) {
    const int first = node * in_node;
    if (in_node > 1 && first + 1 < topology.ranks)
      phases[0].push_back({first, first + 1, LinkClass::kIntraNode});
    if (node + 1 < topology.nodes())
      phases[static_cast<std::size_t>(1 + node % 2)].push_back(
          {first, first + in_node, LinkClass::kInterNode});
  }
  std::erase_if(phases, [](const auto& phase) { return phase.empty(); });
  return phases;
}

}  // namespace sparfuse::harness

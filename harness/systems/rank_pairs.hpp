// Says which ranks exchange at once where links between two of them are measured.
#pragma once

#include <vector>

#include "core/transport/topology.hpp"

namespace sparfuse::harness {

struct RankPair {
  int lower = 0, upper = 0;
  LinkClass link = LinkClass::kIntraNode;
  bool operator==(const RankPair&) const = default;
};

// Pairs that exchange at once, phase by phase; none is in a phase with another pair of its node.
// The first two ranks of each node; then the first ranks of nodes that follow one another: the
// first node with the second, the third with the fourth, ...; then the second with the third, ...
std::vector<std::vector<RankPair>> PhasesOf(const Topology& topology);

}  // namespace sparfuse::harness

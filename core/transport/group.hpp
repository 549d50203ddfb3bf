// What every transport checks and computes alike about groups of ranks.
#pragma once

#include <span>
#include <vector>

#include "core/transport/topology.hpp"

namespace sparfuse {

// Throws Error{kInternal} unless 0 <= peer < size and 0 <= tag < 2^15.
void CheckAddress(int peer, int size, int tag);

struct SplitChoice {
  int color = 0;
  int key = 0;
};

// The group that `rank` joins when rank r of the parent chose choices[r].
struct SplitGroup {
  std::vector<int> members;  // ranks of the parent, in the order of the group
  int rank = 0;              // of the caller, in the group
  Topology topology;
};

// Throws Error{kConfig} when the caller's color is negative, or when the group cannot be numbered
// node by node with equally many ranks on every node but the last.
SplitGroup ComputeSplit(const Topology& parent, int rank, std::span<const SplitChoice> choices);

}  // namespace sparfuse

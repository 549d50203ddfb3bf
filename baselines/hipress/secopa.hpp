// Decides which tensors HiPress compresses, and into how many partitions it cuts each. Plans each
// tensor as a unit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

enum class SecopaTopology : std::uint8_t {
  kServers,  // CaSync-PS: partitions are summed on nodes that share them, and sent back
  kRing,     // CaSync-Ring
};

struct SecopaDecision {
  bool compress = false;
  int partitions = 1;
  bool operator==(const SecopaDecision&) const = default;
};

// SeCoPa, "selective compression and partitioning", with the published constants, for
// 16-node-class machines and a compressor that leaves a sixteenth. It estimates the times of
// sending a tensor whole and compressed. Each way uses the number of partitions, 1 to nodes, with
// the least time (the fewest of equal ones). The tensor is compressed if that takes less.
//
//   nodes     4, 8 or 16, for which there are constants
//   elements  float32
//
// Source: Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN Training
// (HiPress), SOSP 2021; the constants and formulas of its published planner. Pure. Throws
// Error{kConfig} for another number of nodes.
SecopaDecision SecopaDecide(SecopaTopology topology, int nodes, std::size_t elements);

extern const PlannerDescriptor kSecopaPlanner;

}  // namespace sparfuse::baselines

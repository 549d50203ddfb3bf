// The descriptors that registry.cpp joins: one function for each algorithm's file.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse {

Collective RingAllReduce();
Collective NativeAllReduce();
Collective SparseAllGather();

// ring_allreduce.cpp. Also the formula by which native all-reduces are counted.
RoundPlan RingAllReduceRounds(std::span<const std::uint64_t> sizes, const Topology& topology);

// The slowest link among the ranks: a round ends with its last message.
inline LinkClass SlowestLink(const Topology& topology) {
  return topology.nodes() > 1 ? LinkClass::kInterNode : LinkClass::kIntraNode;
}

}  // namespace sparfuse

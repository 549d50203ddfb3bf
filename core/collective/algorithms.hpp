// Declares the descriptors that registry.cpp joins: one function for each algorithm's file.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse {

Collective RingAllReduce();
Collective NativeAllReduce();
Collective SparseAllGather();
Collective NcclAllGather();

// ring_allreduce.cpp. Also the formula by which native all-reduces are counted.
RoundPlan RingAllReduceRounds(std::span<const std::uint64_t> sizes, const Topology& topology);

// sparse_allgather.cpp. Throw Error{kInternal} when payload, capacity and room of a gathering
// `collective` do not fit one another, Error{kComm} when another rank's payload has no whole
// elements.
void CheckGatherBuffers(std::string_view collective, const ExchangeBuffers& buffers,
                        std::size_t ranks);
void CheckPayloadBytes(std::string_view collective, const ExchangeBuffers& buffers,
                       std::size_t rank, std::size_t bytes);

// The slowest link among the ranks: a round ends with its last message.
inline LinkClass SlowestLink(const Topology& topology) {
  return topology.nodes() > 1 ? LinkClass::kInterNode : LinkClass::kIntraNode;
}

}  // namespace sparfuse

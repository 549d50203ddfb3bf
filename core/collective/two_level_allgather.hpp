// Says what an all-gather in two levels takes: between nodes, then within each.
#pragma once

#include <cstdint>
#include <span>

#include "core/collective/rounds.hpp"

namespace sparfuse {

// On N nodes of g ranks: ranks of equal local rank gather around rings between nodes, N - 1 steps,
// all these rings side by side; then the ranks of a node gather around a ring what each of them has
// of all nodes, g - 1 steps. Into a node comes what it lacks, once: no all-gather brings less. (A
// ring through all ranks in order brings the payloads of g - 1 ranks more, in N g - 1 steps.) For
// models: nothing here runs it.
//
//   bytes  [topology.ranks] of each rank's payload
//
// Source: R. Thakur, R. Rabenseifner & W. Gropp, IJHPCA 19(1), 2005 (ring); the order is that of
// core/cost/collective_costs.hpp. Throws Error{kUnsupported} where nodes hold unequal numbers of
// ranks.
RoundPlan TwoLevelAllGatherRounds(std::span<const std::uint64_t> bytes, const Topology& topology);

}  // namespace sparfuse

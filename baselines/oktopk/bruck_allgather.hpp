// Gathers blocks of unequal lengths on all ranks in ceil(log2 P) rounds.
//
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal & D. Weathersby, Efficient Algorithms for
//         All-to-All Communications in Multiport Message-Passing Systems, IEEE TPDS 8(11), 1997
//         (concatenation). Ranks know all lengths, so that each sends one message a round.
//
// A rank has its own block first, then those of the ranks behind it. In the round of distance d =
// 1, 2, 4, ... it sends its first d blocks to the rank d before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/collective/rounds.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// bytes     [P] of the ranks' blocks, equal on all ranks.
// gathered  at least the sum of `bytes`: the blocks of ranks r, r + 1, ..., P - 1, 0, ..., r - 1,
//           one after another, r = communicator.rank(). The first one is there on entry.
// Both outlive the task. Throws Error{kComm} when a message has another length.
Task BruckAllGather(Communicator& communicator, std::span<const std::uint64_t> bytes,
                    std::span<std::byte> gathered, int tag);

// Where in `gathered` of `rank` the block of rank `of` begins. Cost: O(P).
std::size_t BruckBlockBegin(std::span<const std::uint64_t> bytes, std::size_t rank, std::size_t of);

// Adds its rounds, and its traffic to plan.per_rank. Cost: O(P log P).
void AddBruckRounds(std::span<const std::uint64_t> bytes, const Topology& topology,
                    RoundPlan& plan);

}  // namespace sparfuse::baselines

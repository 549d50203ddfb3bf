// Divides a range into as many regions as there are ranks, in each of which a rank finds about as
// many of the elements that it has selected.
//
// Source: S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP
//         2022, section 3.1.1 (balanced split and reduce): boundaries are averaged over the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/rounds.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::baselines {

// [P - 1] where regions 1, ..., P - 1 would begin for one rank: every floor(count / P)-th of its
// indices. A rank that has selected fewer than P elements votes for equal regions. Increasing,
// below `elements` + 1.
std::vector<std::int64_t> RegionVotes(std::span<const std::uint32_t> indices, std::size_t elements,
                                      std::size_t ranks);

// Sets `boundaries` to [P + 1] 0, the means over the ranks of their votes, rounded down, and
// `elements`: region j is [boundaries[j], boundaries[j + 1]) and may be empty. Equal on all ranks:
// rank j adds up the votes for boundary j, in integers, and tells the others.
Task VoteOnRegions(Communicator& communicator, std::span<const std::uint32_t> indices,
                   std::size_t elements, std::vector<std::size_t>& boundaries, int tag);

// Adds its rounds, and its traffic to plan.per_rank.
void AddVoteRounds(const Topology& topology, RoundPlan& plan);

}  // namespace sparfuse::baselines

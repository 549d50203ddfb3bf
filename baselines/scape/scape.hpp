// Declares SCAPE's exchange: all ranks know from earlier averages which elements to send next, so
// that an all-reduce of their values alone sums them, and no message says which they are.
//
// Source:      SCAPE, arXiv 2607.01678 (abstract); the form is this project's.
// Deviations:  in the descriptor.
//
// For a unit, with the accumulated gradient x (gradient + residual) of each rank, all of length n,
// and k elements to be sent:
//
//   m = 0 and no mask at first: the first step sends all of x
//   else the sums of x over ranks at the positions of the mask ("shared-indices-allreduce", which
//   checks that the positions are the same); what is not sent stays in the residual
//   m <- beta m + (1 - beta) average, where the average of what was not sent is 0
//   the mask of the next step: the k - r largest |m|, ties to the lower position, and r others that
//   are drawn at random
//
// m and the numbers drawn are the same on all ranks, hence the masks, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// The number of the `kept` elements of a step that are drawn at random: over steps, this share of
// all. share: in [0, 1].
std::size_t DrawnInStep(std::size_t kept, double share, std::uint64_t step);

// Adds `drawn` positions below n to `positions`, ascending and below n, and keeps them ascending.
// Every set of the other positions is equally likely. Precondition: positions.size() + drawn <= n.
void AddRandomPositions(std::size_t n, std::size_t drawn, std::uint64_t seed, std::uint64_t step,
                        std::vector<std::uint32_t>& positions);

// Options: `beta` of the moment; `random`, the share of elements that are drawn; `seed`.
CollectiveDescriptor MomentMask();

}  // namespace sparfuse::baselines

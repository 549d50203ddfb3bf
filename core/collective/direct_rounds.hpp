// Makes the rounds in which every rank sends to every other one, of what each sends altogether.
#pragma once

#include <cstddef>
#include <span>

#include "core/collective/rounds.hpp"

namespace sparfuse {

// Appends to `plan` the rounds in which ranks send to `bucket` others at a time, and counts them in
// plan.per_rank. None for one rank.
//
//   of_rank  [topology.ranks] what each rank sends and receives in all of them. What goes between
//            two ranks is not known: a rank is taken to send as much to each other one.
void AddDirectRounds(std::span<const Traffic> of_rank, std::size_t bucket, const Topology& topology,
                     RoundPlan& plan);

}  // namespace sparfuse

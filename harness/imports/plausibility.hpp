// Holds others' numbers to one another and to what they say of their network.
#pragma once

#include <span>

#include "harness/imports/imported_result.hpp"

namespace sparfuse::harness {

// Adds to `doubts` what cannot be, and sets implied_gbps:
//
// * A throughput and a step time of one setting, whose batch is known, that contradict each other;
//   where they are as far apart as there are workers, one was taken for that of one worker or of
//   all.
// * A throughput that grows by 1.25 times more than the workers do: numbers of all workers taken
//   for those of one. One that does not grow at all with them: numbers of one taken for all.
// * Of dense all-reduces on several nodes with a label of the network's bandwidth: a step too short
//   for its bytes at that rate; where one worker's step of the same batch is there, too, what
//   communication adds to it and a rate of less than half of the label follows.
//
// Numbers of one number of workers alone, without a step time, can be of one worker or of all:
// nothing here finds out.
void Doubt(std::span<ImportedResult> results, const Catalog& catalog);

}  // namespace sparfuse::harness

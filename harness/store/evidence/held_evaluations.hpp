// Checks the evaluations of a trial against its steps and its cell.
#pragma once

#include <string>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first contradiction: an evaluation at a step at which the cell has none, a time that
// differs from rank 0's steps, an epoch that does not fit the cell's batch, or a target that was
// reached and is not stated, or the reverse.
std::string WhatEvaluationsContradict(const Trial& trial, const OpenSeries& evaluations,
                                      const OpenSeries& steps);

// Whether the evaluations count epochs, which tell how many samples a step takes.
bool TellsBatch(const OpenSeries& evaluations);

}  // namespace sparfuse::harness

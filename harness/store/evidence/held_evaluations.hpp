// Checks the evaluations of a trial against its steps and its cell.
#pragma once

#include <string>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first evaluation that is not where the cell wants one, or whose time is not that of
// rank 0's steps; an epoch that is not of the cell's batch; a target that was reached and is not
// stated, or the reverse.
std::string WhatEvaluationsContradict(const Trial& trial, const OpenSeries& evaluations,
                                      const OpenSeries& steps);

// Whether the evaluations count epochs, which tell how many samples a step takes.
bool TellsBatch(const OpenSeries& evaluations);

}  // namespace sparfuse::harness

// Checks the keys of a trial's record against one another: facts that appear twice must agree.
#pragma once

#include <string>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first key of a trial with numbers of its own that contradicts another key, its series
// or the catalogue's workload: revisions and sources (parts that the configuration does not name),
// tensors, the hosts of ranks, whether it was disturbed, wall seconds, numbers of steps, times of
// evaluations, densities, and bytes that the emulated link cannot carry.
//
//   series  may lack any; checks against a missing series are skipped.
std::string WhatRecordContradicts(const Trial& trial, const OpenSeriesByFile& series);

}  // namespace sparfuse::harness

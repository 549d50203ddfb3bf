// Checks that a trial has what its kind and its mode leave behind, and nothing else.
#pragma once

#include <string>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first fact of a trial with numbers of its own that no trial of its kind and mode has,
// or that it lacks. A model has no readings, checks, losses or launch. A trial that ran has losses
// and checks, and neither a cluster nor draws. Evaluations are of convergence trials, all of which
// have some. A configuration that lacks the keys of cells and profiles is not looked at.
std::string WhatKindContradicts(const Trial& trial, const OpenSeriesByFile& series);

}  // namespace sparfuse::harness

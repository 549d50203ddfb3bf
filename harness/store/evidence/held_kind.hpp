// Checks that a trial has the records of its kind and mode, and no others.
#pragma once

#include <string>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first fact that a trial with numbers of its own lacks, or has although no trial of its
// kind and mode does. A model has no readings, checks, losses or launch. A trial that ran has
// losses and checks, and neither a cluster nor draws. Only convergence trials have evaluations, and
// each has some. A configuration that lacks the keys of cells and profiles is not checked.
std::string WhatKindContradicts(const Trial& trial, const OpenSeriesByFile& series);

}  // namespace sparfuse::harness

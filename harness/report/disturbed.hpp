// Says how many trials were disturbed, and by what: the warning at the head of tables and reports.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// "31 of 108 live trials were disturbed: other work took 22 % of the cores (median of 31). ...", ""
// where none was. Of each cell's block the trial that stands for it is looked at: one that was not
// disturbed where there is one.
std::string DisturbedWarning(const std::vector<PartResult>& results);

// The same of trials of several experiments.
std::string DisturbedWarning(const std::vector<const std::vector<PartResult>*>& results);

}  // namespace sparfuse::harness

// Names what some trials of a machine had set in their environment and others had not.
#pragma once

#include <vector>

#include "harness/compare/differences.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// sides: as DifferencesOf takes them, whose `differences` these are. A variable that not all trials
// of a side have is hidden within it: its values there end with "not set". Where it had no row, as
// of machines that are alike in it, it gets one, at the end.
void AddPartlySet(const std::vector<std::vector<CellResult>>& sides,
                  std::vector<FactDifference>& differences);

}  // namespace sparfuse::harness

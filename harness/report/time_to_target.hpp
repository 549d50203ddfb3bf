// Computes the training that reaches targets: the numbers of a figure of kind "time_to_target".
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// An evaluation of a run.
struct Evaluated {
  double step = 0, epoch = 0, seconds = 0, metric = 0;
};

// The point at which a run reached a target: its first evaluation at or past it, never a point
// between two. A run that did not reach it is censored at its last evaluation.
struct Crossing {
  Evaluated at;
  bool reached = false;
};
// Precondition: evaluations is not empty.
Crossing CrossingOf(std::span<const Evaluated> evaluations, double target, bool higher_is_better);

// "1.2 [1, 1.3]": from five values on their mean without the least and the greatest, below their
// median; and their range. kNone of nothing.
std::string TypicalText(std::vector<double> values);

// {"targets", "rows": [{target, cell, reached, n, epochs, seconds, ...}], "tables": [{columns,
// groups: [[heading, rows]], notes}]}. The targets are the figure's, or else the cells'. The method
// for comparison is the figure's reference, else the part's, else "dense". modelled = the id of a
// part: seconds are on its clusters, from the epochs found here and the step times modelled there.
// Evaluations are read below `folder`, the results folder.
nlohmann::json TimeToTargetOf(const nlohmann::json& figure, std::span<const PartResult> results,
                              std::size_t part, const std::filesystem::path& folder);

}  // namespace sparfuse::harness

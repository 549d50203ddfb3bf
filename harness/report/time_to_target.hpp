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

// Where a run came to a target: its first evaluation at or past it, never one between two. A run
// that did not is censored at its last evaluation.
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
// groups: [[heading, rows]], notes}]}. `figure` has targets, or those of its cells hold, and the
// method that others are compared with: reference, else the part's, else "dense". modelled = the id
// of a part: seconds on its clusters, from the epochs found here and the step times modelled there.
// Evaluations are read beneath `folder`, the results folder.
nlohmann::json TimeToTargetOf(const nlohmann::json& figure, std::span<const PartResult> results,
                              std::size_t part, const std::filesystem::path& folder);

}  // namespace sparfuse::harness

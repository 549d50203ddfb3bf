// Finds parts of an experiment that cannot show their point: comparisons without meaning, and
// measurements without a control.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// Warnings, a sentence each: a reference, or dense, whose plan is one exchange, so that none of its
// communication overlaps the backward pass; cells of one worker, which exchange nothing; methods
// that differ in their names alone. Plans that need a profile are skipped.
std::vector<std::string> VacuousComparisons(const Experiment& experiment);

// Warnings, a sentence each: live throughput cells of several ranks in a part without a reference.
// Nothing in its blocks tells a slow method from a disturbed hour, and `compare` has no ratio.
std::vector<std::string> MissingControls(const Experiment& experiment);

// Warnings, a sentence for each length that is rounded up to whole windows of local steps.
std::vector<std::string> LengthsInWindows(const Experiment& experiment);

// Warnings, a sentence for each live method that exchanges when its channel is idle.
std::vector<std::string> ResultsThatDependOnTimes(const Experiment& experiment);

// Warnings, a sentence for each prepared data set or file of weights that cells need for training
// and that is missing here.
std::vector<std::string> MissingData(const Experiment& experiment);
std::vector<std::string> MissingDataOf(const std::vector<const CellConfig*>& cells);

}  // namespace sparfuse::harness

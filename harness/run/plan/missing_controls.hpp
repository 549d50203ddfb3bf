// Finds parts of an experiment that measure and have no control.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// Warnings, a sentence each: live throughput cells of several ranks in a part without a reference.
// Nothing in its blocks tells a slow method from a disturbed hour, and `compare` has no ratio.
std::vector<std::string> MissingControls(const Experiment& experiment);

}  // namespace sparfuse::harness

// Finds comparisons of an experiment that cannot show what they seem to.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// Warnings, a sentence each: a reference, or dense, whose plan is one exchange, so that it overlaps
// none of its communication with the backward pass; cells of one worker, which exchange nothing;
// methods that differ in their names alone. Plans that need a profile are not looked at.
std::vector<std::string> VacuousComparisons(const Experiment& experiment);

}  // namespace sparfuse::harness

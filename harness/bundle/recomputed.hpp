// Makes a trial's metrics again from its steps: a number that was edited together with every hash
// over it is found where the steps are there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/bundle/bundled_trial.hpp"

namespace sparfuse::harness {

// The measured steps that a trial's metrics are of.
struct StepRange {
  std::int64_t first = 0, last = 0;
  std::size_t measured = 0, ranks = 0;
};

struct Recomputed {
  std::optional<StepRange> steps;  // none without steps.npy, or where it is not of a run of ours
  std::string differs;             // "" or the first metric that the steps do not give; a sentence
};

// Times, counts and rounds of trial.json; what is made of more than the steps (a metric's final
// value, fibres) is not looked at. Numbers may differ by 1e-9, relative.
Recomputed RecomputeMetrics(const BundledTrial& trial);

}  // namespace sparfuse::harness

// Checks a bundle: its bytes, and that its numbers are those of its steps.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/bundle/bundle.hpp"
#include "harness/bundle/bundled_trial.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// The measured steps that a trial's metrics are of.
struct StepRange {
  std::int64_t first = 0, last = 0;
  std::size_t measured = 0, ranks = 0;
  bool operator==(const StepRange&) const = default;
};

struct Recomputed {
  std::optional<StepRange> steps;  // none without steps.npy, or where it is not of a run of ours
  std::string differs;             // "" or the first metric that the steps do not give; a sentence
};

// Times, counts, rounds and what evaluations give of trial.json; what is made of more than its
// series (fibres, bands) is not looked at. Numbers may differ by 1e-9, relative.
Recomputed RecomputeMetrics(const BundledTrial& trial);

struct CheckedTrial {
  std::map<std::string, std::string> sha256;  // by file
  std::optional<StepRange> steps;
};

struct Verification {
  nlohmann::json table;  // TableOfTrials, of the trials that are as they were written
  std::map<std::string, CheckedTrial> trials;  // by id: what the numbers of the table are of
  std::vector<TrialRow> rows;                  // with their annotations, of the trials that hold
  // Trials whose numbers were made again from their steps, those that have none to do so, and those
  // without numbers of their own: failed ones and results of others.
  std::size_t of_steps = 0, without_steps = 0, without_numbers = 0;
  std::map<std::string, std::string> refused;  // by id: why a trial does not hold, a sentence
  std::string table_differs;  // a sentence, where everything is readable and gives another; or ""
  std::vector<std::string> problems;  // all of these; none: every byte is as it was written
};

// Reads every byte of the bundle, makes the metrics of trials again whose steps it has, and its
// table.
Verification Verify(const Bundle& bundle);

}  // namespace sparfuse::harness

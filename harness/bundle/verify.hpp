// Checks a bundle: its bytes, and that its numbers follow from its steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/bundle/bundle.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

struct CheckedTrial {
  std::map<std::string, std::string> sha256;  // by file
  std::optional<StepRange> steps;
};

struct Verification {
  nlohmann::json table;  // TableOfTrials, of the trials that are as they were written
  std::map<std::string, CheckedTrial> trials;  // by id: the sources of the table's numbers
  std::vector<TrialRow> rows;                  // with their annotations, of the trials that hold
  // Trials whose numbers were computed again from their steps; trials without steps for that; and
  // trials without numbers of their own, that is failed ones and results of others.
  std::size_t of_steps = 0, without_steps = 0, without_numbers = 0;
  // Part of the first: trials with evaluations that were checked against steps and metrics, and
  // trials in the form of earlier bundles, whose other facts were not checked.
  std::size_t of_evaluations = 0, of_earlier_form = 0;
  // In how many trials something is stated that nothing else tells (Recomputed::unchecked), by the
  // reason and the name.
  std::map<std::pair<std::string, std::string>, std::size_t> unchecked;
  // Likewise columns of series: "steps.npy: summed" (Recomputed::columns_of_nothing).
  std::map<std::string, std::size_t> unchecked_columns;
  std::size_t without_readings = 0;  // live trials that do not say whether they were disturbed
  std::map<std::string, std::string> refused;  // by id: why a trial does not hold, a sentence
  // A sentence if the readable trials give other rows than the table has of them; or "".
  std::string table_differs;
  std::vector<std::string> problems;  // all of these; none: every byte is as written
};

// Reads every byte of the bundle, and computes again its table and the metrics of all trials that
// have steps.
Verification Verify(const Bundle& bundle);

// Keys of a trial that nothing else in a bundle confirms. Somebody who computes all hashes again,
// and the cell's name for keys of a cell, can set them to anything. Examples: "started_utc",
// "config.recipe", "launch.nodes.*.cores". A key includes all keys below it. Facts of a system and
// its nodes are confirmed if the trial has several hosts, whose system they are, and not if it has
// one.
std::span<const std::string> KeysThatNothingTells();

// The checks that were not possible, a sentence each: "3 of 227 trials without steps: not checked".
std::vector<std::string> WhatIsNotChecked(const Verification& verification);

// The content of a steps.npy: [rows].
struct TrialSteps {
  std::string sha256;
  std::vector<double> seconds, losses;
};

// Nothing if the bytes are no steps.npy, or have no row.
std::optional<TrialSteps> ReadTrialSteps(std::string_view bytes);

// The steps of trials that ran. No two trials have the same times, and none with another seed the
// same losses.
class KnownSteps {
 public:
  // seed: gives the trial's seed; called at most once, if losses are equal.
  void Take(std::string id, TrialSteps steps, std::function<std::optional<std::int64_t>()> seed);

  // "" or a sentence that names the trial with the same steps: steps equal to the last bit; or all
  // times of at least eight rows within a millionth; or the same losses (at least two of them
  // different) with another seed.
  std::string WhatIsCopied(const TrialSteps& steps, std::int64_t seed) const;

 private:
  struct Known {
    std::string id;
    TrialSteps steps;
    std::function<std::optional<std::int64_t>()> seed;
  };
  std::multimap<std::size_t, Known> by_rows_;
};

}  // namespace sparfuse::harness

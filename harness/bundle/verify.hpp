// Checks a bundle: its bytes, and that its numbers follow from its steps.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
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
  std::map<std::string, CheckedTrial> trials;  // by id: what the numbers of the table are of
  std::vector<TrialRow> rows;                  // with their annotations, of the trials that hold
  // Trials whose numbers were made again from their steps, those that have none to do so, and those
  // without numbers of their own: failed ones and results of others.
  std::size_t of_steps = 0, without_steps = 0, without_numbers = 0;
  // Of the first: those with evaluations that were held to steps and metrics, and those of the form
  // of earlier bundles, whose other facts are not.
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
  std::vector<std::string> problems;  // all of these; none: every byte is as it was written
};

// Reads every byte of the bundle, makes the metrics of trials again whose steps it has, and its
// table.
Verification Verify(const Bundle& bundle);

// Keys of a trial of which nothing else in a bundle says the same: with all hashes made again, and
// for keys of its cell its name, they can be anything. "started_utc", "config.recipe",
// "launch.nodes.*.cores"; a key stands for all beneath it. What a system and nodes have is told of
// several hosts, whose system they are, and not of one.
std::span<const std::string> KeysThatNothingTells();

// What a verification did not check, a sentence each: "3 of 227 trials without steps: not checked".
std::vector<std::string> WhatIsNotChecked(const Verification& verification);

}  // namespace sparfuse::harness

// Names what differs between machines, or within the trials of one: the facts that trials record,
// fusion plans, and the measurements of the systems themselves, before any trial.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/compare/side.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

struct FactDifference {
  std::string name;                 // "software.nccl", "system.cpu_model"
  std::vector<std::string> values;  // by side: all that it has, in order, joined by " | "
  bool hidden = false;              // a side has several, and its numbers are averages over them
  // If the fact is hidden: the cells whose own trials differ in it, with the trials that have the
  // rarer values: "b: wfbp, digits-resnet, 2 workers, 0a1b2c3d: 5.0 in e/p/...-b1-1".
  std::vector<std::string> cells = {};
};

// Differences of the systems first, then of software, environment and sources, as trials record
// them. Facts that change from trial to trial (load, arguments) are left out. Unlike nodes give a
// system several values. The number of hosts, and of cores on each, is hidden if it varies within
// one setting.
std::vector<FactDifference> DifferencesOf(const std::vector<std::vector<CellResult>>& sides);

// Sets `cells` of hidden facts; names: of the sides.
void NameCells(const std::vector<std::vector<CellResult>>& sides,
               const std::vector<std::string>& names, std::vector<FactDifference>& differences);

// sides: as for DifferencesOf, which gave `differences`. A variable that only some trials of a side
// have is hidden, and its values on that side end with "not set". If it has no row, because the
// machines agree in it, it gets one at the end.
void AddPartlySet(const std::vector<std::vector<CellResult>>& sides,
                  std::vector<FactDifference>& differences);

// JSON as trials keep it: a plan's keys are its strategy's, and an outcome may be of another
// version.
struct SidePlan {
  std::string side;
  nlohmann::json outcome;      // of a trial: its "plans"
  nlohmann::json config;       // of the trial: how its units are sent
  nlohmann::json environment;  // of the trial: the settings of NCCL
  std::optional<double> achieved_density;
  std::optional<double> sparsify_seconds, exposed_seconds;  // a step's, for the reason
};

// The last PlanSummary of an outcome, without its step; null if there is none.
nlohmann::json LastPlan(const nlohmann::json& outcome);

// "" if all plans are equal or fewer than two are known. Else "h100 makes 12 exchanges: 3 dense by
// all-reduce, 9 by sparse-allgather, 4 of them in 3 parts, density achieved 0.0102 (selection 900
// µs, exposed communication 4.00 ms a step); ...". If a trial planned several times, its last plan
// counts.
std::string PlanDifference(const std::vector<SidePlan>& plans);

// The fingerprint of the newest trial of a side that has one.
std::optional<Fingerprint> FingerprintOf(const SystemSide& side);

// The changes of a side's system during runs, each sentence once, from their fingerprints before
// and after.
std::vector<std::string> ChangedDuringRuns(const SystemSide& side);

// Sentences. For each side with unlike nodes, a description of them. For each, changes during its
// runs. For each side after the first, a replaced card, then the differences of the fingerprints,
// links first. If one side has no fingerprint and another has, a sentence on that.
std::vector<std::string> WhatDiffersInHardware(const std::vector<SystemSide>& sides,
                                               const std::vector<FactDifference>& differences);

// The quantities that differ between any two, as facts: "fingerprint: bandwidth between nodes".
std::vector<FactDifference> FingerprintFacts(const std::vector<SystemSide>& sides);

}  // namespace sparfuse::harness

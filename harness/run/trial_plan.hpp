// Plans which trials an experiment needs and the store does not have, and says why.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

struct PlannedTrial {
  std::string experiment, part;
  CellConfig config;
  std::string config_hash;
  nlohmann::json system;   // null for a modelled trial whose profile is missing
  nlohmann::json profile;  // modelled trials: what the model gets
  nlohmann::json revisions;
  int block = 0;
  std::int64_t seed = 0;
  double timeout_seconds = 600;
  std::string why;               // "never run", "failed before (comm)", what differs
  double estimated_seconds = 0;  // from stored trials; 0: no history
};

struct PlanContext {
  const Catalog& catalog;
  const Store& store;
  nlohmann::json machine;  // DescribeSystem()
  bool fresh = false;      // everything runs again
};

struct TrialPlan {
  std::vector<PlannedTrial> trials;
  std::size_t present = 0;  // trials that the store has
};

// Live trials in the order in which they run: profiles first, then block by block, the cells of a
// block shuffled by the part's seed and the block.
TrialPlan PlanLive(const PlanContext& context, const std::vector<Experiment>& experiments,
                   const std::vector<TrialRow>& rows);

// Modelled trials, twins included. Those whose profile is missing have a null system and say so.
TrialPlan PlanModelled(const PlanContext& context, const std::vector<Experiment>& experiments,
                       const std::vector<TrialRow>& rows);

// What this machine lacks for trials of the plan, a sentence each: they will fail, others go on.
std::vector<std::string> ProblemsOf(const TrialPlan& plan);

// Mean seconds of stored trials like this one: of the same cell, else of the same kind, mode,
// workload and workers, else of the same kind and mode; 0 without any.
double EstimateSeconds(const CellConfig& config, const std::string& config_hash,
                       const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness

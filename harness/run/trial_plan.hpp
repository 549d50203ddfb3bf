// Plans which trials an experiment needs and the store does not have, and says why.
#pragma once

#include <map>
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
  nlohmann::json sources;  // SourcesOf(config)
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
  // Of those present: how many were made with other sources of a part, by part ("sparsifier:dgc").
  std::map<std::string, std::size_t> other_sources;
};

// Live trials in the order in which they run: profiles first, then block by block, the cells of a
// block shuffled by the part's seed and the block.
TrialPlan PlanLive(const PlanContext& context, const std::vector<Experiment>& experiments,
                   const std::vector<TrialRow>& rows);

// Modelled trials, twins included. Those whose profile is missing have a null system and say so.
TrialPlan PlanModelled(const PlanContext& context, const std::vector<Experiment>& experiments,
                       const std::vector<TrialRow>& rows);

// Warnings, a sentence each: what this machine lacks for trials of the plan, which will fail, and
// which trials that count were made with other sources of their parts.
std::vector<std::string> ProblemsOf(const TrialPlan& plan);

// Mean seconds of stored trials like this one: of the same cell, else of the same kind, mode,
// workload and workers, else of the same kind and mode; 0 without any.
double EstimateSeconds(const CellConfig& config, const std::string& config_hash,
                       const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness

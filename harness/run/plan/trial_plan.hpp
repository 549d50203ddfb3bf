// Plans which trials an experiment needs and the store does not have, and says why.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/records/node.hpp"
#include "harness/records/profile.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// What a trial takes: the start and end of its processes, which a launch of several has once, and
// what happens in its turns.
struct EstimatedTime {
  double start = 0, turns = 0;  // seconds
};

struct PlannedTrial {
  std::string experiment, part;
  CellConfig config;
  std::string config_hash;
  System system;            // not known of a modelled trial whose profile is missing
  int hosts = 0;            // that its launch will be on; 0: of a modelled one
  ProfileOutcomes profile;  // modelled trials: what the model gets
  std::map<std::string, std::int64_t> revisions;
  std::map<std::string, std::string> sources;  // SourcesOf(config)
  int block = 0;
  std::int64_t seed = 0;
  double timeout_seconds = 600;
  QuietLimits quiet;
  std::string why;  // "never run", "failed before (comm)", what differs
  // Trials of one number run in one launch, and are neighbours in the plan; 0: it has its own.
  std::size_t launch = 0;
  std::string alone;             // why it does not share one, where it might; or ""
  EstimatedTime estimate;        // from stored trials; 0: no history
  double estimated_seconds = 0;  // its part of its launch
};

// What a launch may use.
struct LaunchMemory {
  double bytes = 0;       // of the host, or of one card
  std::size_t cards = 0;  // 0: of the host
};

// Where a run's launches go.
struct LaunchedHosts {
  bool across = false;  // ranks may be on other hosts than this program's
  // By host, in the launcher's order, as DescribeNode (harness/systems/detected_node.hpp) has them;
  // empty: not known.
  std::vector<Node> nodes = {};
};

struct PlanContext {
  const Catalog& catalog;
  const Store& store;
  System machine;                           // DescribeSystem()
  bool fresh = false;                       // everything runs again
  bool retry_disturbed = false;             // what has only disturbed trials runs again
  std::optional<LaunchMemory> memory = {};  // nothing: this machine's
  LaunchedHosts hosts = {};

  // What launches are on: the nodes of their hosts or, where these are this host or not known, the
  // machine.
  System SystemOfLaunches() const;
  // Of those that the cell's ranks are on.
  System SystemOf(const CellConfig& config) const;
  // Of so many of the hosts, the first ones.
  System SystemOfHosts(std::size_t count) const;
  int HostsOf(const CellConfig& config) const;
};

struct TrialPlan {
  std::vector<PlannedTrial> trials;
  std::size_t present = 0;    // trials that the store has
  std::size_t disturbed = 0;  // of those present: cells' blocks that have disturbed trials alone
  // Of those present: how many were made with other sources of a part, by part ("sparsifier:dgc").
  std::map<std::string, std::size_t> other_sources;
};

// Live trials in the order in which they run: profiles first, then block by block, the cells of a
// block shuffled by the part's seed and the block; those that share a launch
// (harness/run/plan/shared_launch.hpp) stand where the first of them does.
TrialPlan PlanLive(const PlanContext& context, const std::vector<Experiment>& experiments,
                   const std::vector<TrialRow>& rows);

// Leaves the live trials that measure profiles, which modelled trials need.
void KeepProfiles(TrialPlan& live);

// Modelled trials, twins included. Those whose profile is missing have a null system and say so.
TrialPlan PlanModelled(const PlanContext& context, const std::vector<Experiment>& experiments,
                       const std::vector<TrialRow>& rows);

// Warnings, a sentence each: what this machine lacks for trials of the plan, which will fail;
// trials that do not run side by side for want of memory; and which trials that count were made
// with other sources of their parts.
std::vector<std::string> ProblemsOf(const TrialPlan& plan);

// Means of stored trials like this one: of the same cell, else of the same kind, mode, workload and
// workers, else of the same kind and mode; 0 without any.
EstimatedTime EstimateTime(const CellConfig& config, const std::string& config_hash,
                           const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness

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

// The time of a trial: the start and end of its processes, once for a launch of several, and its
// turns.
struct EstimatedTime {
  double start = 0, turns = 0;  // seconds
};

struct PlannedTrial {
  std::string experiment, part;
  CellConfig config;
  std::string config_hash;
  System system;            // unknown for a modelled trial whose profile is missing
  int hosts = 0;            // that its launch will be on; 0: of a modelled one
  ProfileOutcomes profile;  // modelled trials: the model's input
  std::map<std::string, std::int64_t> revisions;
  std::map<std::string, std::string> sources;  // SourcesOf(config)
  int block = 0;
  std::int64_t seed = 0;
  double timeout_seconds = 600;
  QuietLimits quiet;
  std::string why;  // "never run", "failed before (comm)", the difference
  // Trials of one number run in one launch, and are neighbours in the plan; 0: it has its own.
  std::size_t launch = 0;
  std::string alone;             // the reason why it shares no launch, if it might; or ""
  EstimatedTime estimate;        // from stored trials; 0: no history
  double estimated_seconds = 0;  // its part of its launch
};

// The memory that a launch may use.
struct LaunchMemory {
  double bytes = 0;       // of the host, or of one card
  std::size_t cards = 0;  // 0: of the host
};

// The hosts of a run's launches.
struct LaunchedHosts {
  bool across = false;  // ranks may be on other hosts than this program's
  // By host, in the launcher's order, in the form of DescribeNode
  // (harness/systems/detected_node.hpp); empty: not known.
  std::vector<Node> nodes = {};
};

struct PlanContext {
  const Catalog& catalog;
  const Store& store;
  System machine;                           // DescribeSystem()
  bool fresh = false;                       // everything runs again
  bool retry_disturbed = false;             // cells with disturbed trials alone run again
  std::optional<LaunchMemory> memory = {};  // nothing: this machine's
  LaunchedHosts hosts = {};

  // The system of launches: the nodes of their hosts, or the machine if the hosts are this host or
  // unknown.
  System SystemOfLaunches() const;
  // The system of the hosts with the cell's ranks.
  System SystemOf(const CellConfig& config) const;
  // The system of the first `count` hosts.
  System SystemOfHosts(std::size_t count) const;
  int HostsOf(const CellConfig& config) const;
};

struct TrialPlan {
  std::vector<PlannedTrial> trials;
  std::size_t present = 0;    // trials that the store has
  std::size_t disturbed = 0;  // of those present: cells' blocks that have disturbed trials alone
  // Of those present: the number made with other sources of a part, by part ("sparsifier:dgc").
  std::map<std::string, std::size_t> other_sources;
};

// Live trials in their order of running: profiles first, then block by block. The cells of a block
// are shuffled by the part's seed and the block. Trials that share a launch
// (harness/run/plan/shared_launch.hpp) are at the place of the first of them.
TrialPlan PlanLive(const PlanContext& context, const std::vector<Experiment>& experiments,
                   const std::vector<TrialRow>& rows);

// Leaves the live trials that measure profiles, which modelled trials need.
void KeepProfiles(TrialPlan& live);

// Modelled trials, twins included. A trial whose profile is missing has a null system and says so.
TrialPlan PlanModelled(const PlanContext& context, const std::vector<Experiment>& experiments,
                       const std::vector<TrialRow>& rows);

// Warnings, a sentence each: missing resources of this machine, without which trials of the plan
// will fail; trials that do not run side by side for lack of memory; and trials that count although
// they were made with other sources of their parts.
std::vector<std::string> ProblemsOf(const TrialPlan& plan);

// A ratio pairs trials of one block, which run at about the same time. So a live cell that joined a
// part takes the first group of the part's number of blocks in which the cell was tried already, or
// its references have no trial. Its references run in these blocks as well. References are the
// part's and those that its figures divide by.
void OpenBlocks(const PlanContext& context, const std::vector<TrialRow>& rows,
                std::vector<Experiment>& experiments);

}  // namespace sparfuse::harness

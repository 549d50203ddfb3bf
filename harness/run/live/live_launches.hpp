// Launches live trials: sends hosts the files that they lack, watches the ranks, takes back their
// files, and leaves out nodes on which launches fail.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/records/launch.hpp"
#include "harness/run/live/hosts/node_failures.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/ship/shipping.hpp"
#include "harness/run/progress.hpp"
#include "harness/run/run_options.hpp"
#include "harness/run/trial_writer.hpp"

namespace sparfuse::harness {

// A trial with the directory that it has in the store.
struct LiveTrial {
  const PlannedTrial* planned;
  std::string id;
  std::filesystem::path directory;  // absolute
};

struct EndedLaunch {
  LaunchResult end;
  std::vector<std::filesystem::path> directories;  // of its trials
  std::filesystem::path log;
  double timeout_seconds = 0;      // of all its trials
  std::vector<Blame> silent = {};  // hosts on which no rank starts, if ranks did not meet
  // All but the launch, the seconds of a trial and the system's fingerprint; of an interrupted
  // launch nothing.
  HowItRan how;
  TrialLaunch record;  // with the hosts' real names

  // The record as trials keep it; puts its names into the private.json of each trial.
  TrialLaunch PutNamesApart() const;
};

class LiveLaunches {
 public:
  // options and interrupted outlive this object. Sends the worker, with the data of the catalog's
  // workloads, to its hosts if they share no folder with this one. Throws the errors of Shipping
  // and NodesOf.
  LiveLaunches(const Catalog& catalog, const RunOptions& options,
               const std::atomic<bool>& interrupted);

  // Launches the trials, as their launch of this number, and waits for all processes to end.
  EndedLaunch Run(const std::vector<LiveTrial>& trials, int number, Progress& progress);

  // Decides whether a node is at fault for the failures of a launch, and writes that into the
  // launch's record. outcomes: of the trials that `ended`.
  void Judge(const std::vector<const LiveTrial*>& ended, const std::vector<Outcome>& outcomes,
             EndedLaunch& launch, Progress& progress);

  // The launches' method for ranks on `needed` nodes, without the nodes that are left out if enough
  // others are there. file: the path for a hostfile.
  LaunchMethod Method(const std::filesystem::path& file, int needed) const {
    return nodes_ ? nodes_->Method(file, needed) : options_.launch;
  }

  // The trials that failed on nodes that were left out since the last call. They run again.
  std::vector<PlannedTrial> TakeFailed();

 private:
  // A host that is reached and never answers says nothing that names it: each is tried alone.
  // folder: that the launch's ranks see, too.
  std::vector<Blame> SilentHosts(const LaunchMethod& method, const std::filesystem::path& worker,
                                 const std::filesystem::path& folder, double start_seconds) const;

  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  std::optional<Shipping> shipping_;
  std::optional<NodeFailures> nodes_;  // across hosts
};

}  // namespace sparfuse::harness

// Launches live trials: sends hosts the files that they lack, watches the ranks, takes back their
// files, and leaves out nodes on which launches fail.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/records/launch.hpp"
#include "harness/records/trial.hpp"
#include "harness/run/live/hosts/preflight.hpp"
#include "harness/run/live/launch/launch_method.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/ship/shipping.hpp"
#include "harness/run/plan/trial_plan.hpp"
#include "harness/run/progress.hpp"
#include "harness/run/run_options.hpp"
#include "harness/run/trial_writer.hpp"

namespace sparfuse::harness {

// The node of `nodes` at fault for a launch that ended with `failure`; none if no node or several
// nodes may be at fault. It is the node of the rank that was killed or does not answer, else the
// node in the launcher's error lines. launch: the trial's, with the hosts of its ranks as far as
// known. An error that a rank itself reported (a number, a file, memory) is not a node's fault.
HostFailure NodeToBlame(const std::vector<std::string>& nodes, const TrialLaunch& launch,
                        const Failure& failure, const std::string& log);

// The failure of a launch.
struct LaunchFailure {
  std::string log;                       // its end
  Failure failure;                       // of the first trial
  std::vector<PlannedTrial> trials;      // none: it went well
  std::vector<HostFailure> silent = {};  // nodes on which no rank starts, if that was tried
  int needed = 1;                        // nodes
};

class NodeFailures {
 public:
  // nodes: all that the method may use; none if it cannot choose among them.
  NodeFailures(const LaunchMethod& method, std::vector<std::string> nodes);

  const std::vector<std::string>& nodes() const noexcept { return nodes_; }
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }

  // The message for the user about a launch, or "". Writes the failed and the left-out nodes into
  // its record.
  std::string Judge(const LaunchFailure& failed, TrialLaunch& launch);
  // The trials that failed on nodes that were left out since the last call. They run again.
  std::vector<PlannedTrial> TakeFailed() { return std::exchange(elsewhere_, {}); }

  // Counts a failed launch of ranks on `needed` nodes. Returns the message for the user, or "". The
  // second failure of a node leaves it out if enough others are there.
  std::string Count(const std::string& node, int needed, const std::string& why);

  // The method for ranks on `needed` nodes, without the nodes that are left out if enough others
  // are there. file: the path for a hostfile without them.
  LaunchMethod Method(const std::filesystem::path& file, int needed) const;
  // The nodes that the method may then use.
  std::vector<std::string> NodesFor(int needed) const;

 private:
  bool LeavesSomeOut(int needed) const;

  const LaunchMethod& method_;
  std::vector<std::string> nodes_, left_out_;
  std::map<std::string, int> failures_;
  std::map<std::string, std::vector<PlannedTrial>> failed_on_;  // by node
  std::vector<PlannedTrial> elsewhere_;                         // of nodes that are left out
};

// The nodes of a method that can choose among them: of a hostfile, or of srun's allocation.
std::vector<std::string> ChoosableNodes(const LaunchMethod& method);

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
  double timeout_seconds = 0;            // of all its trials
  std::vector<HostFailure> silent = {};  // hosts on which no rank starts, if ranks did not meet
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
  std::vector<HostFailure> SilentHosts(const LaunchMethod& method,
                                       const std::filesystem::path& worker,
                                       const std::filesystem::path& folder,
                                       double start_seconds) const;

  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  std::optional<Shipping> shipping_;
  std::optional<NodeFailures> nodes_;  // across hosts
};

}  // namespace sparfuse::harness

// Leaves out nodes on which launches fail repeatedly, if other nodes can replace them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/launch.hpp"
#include "harness/records/trial.hpp"
#include "harness/run/live/launch/launch_method.hpp"
#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

struct Blame {
  std::string node;  // "": none
  std::string why;
};

// The node of `nodes` at fault for a launch that ended with `failure`; none if no node or several
// nodes may be at fault. It is the node of the rank that was killed or does not answer, else the
// node in the launcher's error lines. launch: the trial's, with the hosts of its ranks as far as
// known. An error that a rank itself reported (a number, a file, memory) is not a node's fault.
Blame NodeToBlame(const std::vector<std::string>& nodes, const TrialLaunch& launch,
                  const Failure& failure, const std::string& log);

// The failure of a launch.
struct LaunchFailure {
  std::string log;                   // its end
  Failure failure;                   // of the first trial
  std::vector<PlannedTrial> trials;  // none: it went well
  std::vector<Blame> silent = {};    // nodes on which no rank starts, if that was tried
  int needed = 1;                    // nodes
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

}  // namespace sparfuse::harness

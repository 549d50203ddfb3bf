// Leaves out nodes on which launches fail again and again, where others can take their place.
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

// The one of `nodes` that a launch which ended as `failure` says is to be blamed on; none where it
// is none of them, or may be several: that of the rank which was killed or does not answer, else
// the one that the launcher's lines of error name. launch: the trial's, with the hosts of its ranks
// where they came so far. What a rank found wrong itself (a number, a file, memory) is no node's
// fault.
Blame NodeToBlame(const std::vector<std::string>& nodes, const TrialLaunch& launch,
                  const Failure& failure, const std::string& log);

// What failed of a launch, and how.
struct LaunchFailure {
  std::string log;                   // its end
  Failure failure;                   // of the first trial
  std::vector<PlannedTrial> trials;  // none: it went well
  std::vector<Blame> silent = {};    // nodes on which no rank starts, where that was tried
  int needed = 1;                    // nodes
};

class NodeFailures {
 public:
  // nodes: all that the method may use; none where it cannot choose among them.
  NodeFailures(const LaunchMethod& method, std::vector<std::string> nodes);

  const std::vector<std::string>& nodes() const noexcept { return nodes_; }
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }

  // What to say of a launch, or "". Writes what failed and is left out into its record.
  std::string Judge(const LaunchFailure& failed, TrialLaunch& launch);
  // What failed on nodes that were left out since the last call: to be run again.
  std::vector<PlannedTrial> TakeFailed() { return std::exchange(elsewhere_, {}); }

  // Counts a failed launch of ranks on `needed` nodes; what to say of it, or "". The second one of
  // a node leaves it out, where enough others are there.
  std::string Count(const std::string& node, int needed, const std::string& why);

  // The method for ranks on `needed` nodes without those that are left out, where enough others are
  // there. file: where a hostfile without them may be written.
  LaunchMethod Method(const std::filesystem::path& file, int needed) const;
  // What it may then use.
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

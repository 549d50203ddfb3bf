// Finds the facts of the nodes of a run's launches, before its first trial.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/run/run_options.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

struct AskedNodes {
  std::vector<Node> nodes;  // by host, as RunOptions has them; empty: they did not all tell
  std::vector<std::string> problems;  // the reasons for which trials would fail there, a sentence
                                      // each
};

// Asks by a preflight (harness/run/live/hosts/preflight.hpp), which takes a second or two. What is
// no launch at all (srun outside of an allocation, no worker) is no problem here: trials say it.
AskedNodes AskNodes(const RunOptions& options, const std::filesystem::path& results,
                    const std::atomic<bool>& interrupted);

// The nodes of the newest trial that names its nodes, each kind once; empty if no trial does.
std::vector<Node> StoredNodes(const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness

// Holds the options of a run.
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "harness/records/node.hpp"
#include "harness/run/live/launch/launch_method.hpp"

namespace sparfuse::harness {

struct RunOptions {
  std::filesystem::path root;    // of the project: for the source's identity
  std::filesystem::path worker;  // the executable of live trials
  LaunchMethod launch;           // of live trials
  bool ship = false;             // their hosts share no folder with this one
  // The nodes of launches' hosts (LaunchedHosts); nothing: nobody asked yet.
  std::optional<std::vector<Node>> nodes = {};
  std::filesystem::path data;     // shipped with the worker
  std::optional<int> block = {};  // only the trials of this block
  bool fresh = false;
  // Whether to take a fingerprint of the system before and after live trials; nothing: for long
  // runs over several hosts (harness/run/live/run_fingerprints.hpp).
  std::optional<bool> fingerprint = {};
  bool modelled_only = false;    // of live trials, only the profiles that modelled ones need
  bool keep_disturbed = false;   // a disturbed trial does not run again at once
  bool retry_disturbed = false;  // nor does the store's stay: it runs again
  std::FILE* progress = stdout;  // the current trial and the remaining time
};

}  // namespace sparfuse::harness

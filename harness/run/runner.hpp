// Runs what a store lacks, one trial after another.
#pragma once

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/launch/launch_method.hpp"
#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

struct RunOptions {
  std::filesystem::path root;    // of the project: for the source's identity
  std::filesystem::path worker;  // the executable of live trials
  LaunchMethod launch;           // of live trials
  bool ship = false;             // their hosts share no folder with this one
  // Of the hosts of launches (LaunchedHosts); nothing: nobody asked yet.
  std::optional<std::vector<nlohmann::json>> nodes = {};
  std::filesystem::path data;     // what is shipped beside the worker
  std::optional<int> block = {};  // of the plan's trials those of this block
  bool fresh = false;
  // A fingerprint of the system before and after live trials; nothing: of long runs over several
  // hosts (harness/run/fingerprint/run_fingerprints.hpp).
  std::optional<bool> fingerprint = {};
  bool modelled_only = false;    // of live trials only the profiles that modelled ones need
  bool keep_disturbed = false;   // a disturbed trial does not run again at once
  bool retry_disturbed = false;  // nor does the store's stay: it runs again
  std::FILE* progress = stdout;  // what runs, and how long still
};

struct RunSummary {
  std::size_t present = 0, ok = 0, failed = 0;
  std::size_t disturbed = 0;  // of those that ran well: disturbed to the end
  std::size_t reruns = 0;     // of disturbed ones, at once
  bool interrupted = false;
};

// Modelled trials first, as far as their profiles are there; then live ones; then those whose
// profiles they measured. Holds the store's lock; finishes each trial or leaves no trace of it.
// Failed trials become rows and are run again by the next call. Trials with more threads than cores
// run too; tables show them apart. Throws Error{kConfig} when another process holds the store,
// Error{kData} when the store cannot be written.
RunSummary RunExperiments(const Catalog& catalog, const Store& store,
                          const std::vector<Experiment>& experiments, const RunOptions& options,
                          const std::atomic<bool>& interrupted);

}  // namespace sparfuse::harness

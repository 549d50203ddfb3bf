// Runs the trials that a store lacks, one after another.
#pragma once

#include <atomic>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"
#include "harness/run/run_options.hpp"

namespace sparfuse::harness {

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

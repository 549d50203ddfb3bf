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
  std::size_t reruns = 0;     // immediate, of disturbed trials
  bool interrupted = false;
};

// Runs modelled trials whose profiles exist; then live trials; then modelled trials whose profiles
// were just measured. Holds the store's lock; finishes each trial or leaves no trace of it. Failed
// trials become rows, and the next call runs them again. Trials with more threads than cores run
// too; tables mark them. Throws Error{kConfig} if another process holds the store, Error{kData} if
// the store cannot be written.
RunSummary RunExperiments(const Catalog& catalog, const Store& store,
                          const std::vector<Experiment>& experiments, const RunOptions& options,
                          const std::atomic<bool>& interrupted);

}  // namespace sparfuse::harness

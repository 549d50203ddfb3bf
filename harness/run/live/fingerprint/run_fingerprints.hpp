// Takes a fingerprint before the live trials of a run and one after them.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"
#include "harness/run/run_options.hpp"
#include "harness/store/store.hpp"
#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

// Runs over several hosts of at least so many live trials take fingerprints unless told not to:
// they are seconds then, and links between hosts change.
inline constexpr std::size_t kLongRun = 20;

class RunFingerprints {
 public:
  // All outlive this object. say: a line for whoever started the run.
  RunFingerprints(const StoreLock& lock, const Store& store, const RunOptions& options,
                  const std::atomic<bool>& interrupted,
                  std::function<void(const std::string&)> say);

  // Where options ask for it: measures on as many ranks as the largest trial has, over the
  // machine's own links, and keeps it as results/fingerprints/SYSTEM/TIME.json. Throws what
  // TakeFingerprint throws where it was asked for; else says why there is none.
  void Before(const TrialPlan& live);
  // What each trial between has of it: the fingerprint with "id" and "taken_utc"; null where none
  // was taken.
  const nlohmann::json& OfTrials() const noexcept { return of_trials_; }
  // A trial between that ended.
  void Ran(const Trial& trial);
  // Measures again, keeps that too, and says what has changed meanwhile; the trials between say it
  // from then on, as "changed" of their fingerprint. launch: of now, without hosts that were left
  // out since.
  void After(const LaunchMethod& launch);

 private:
  nlohmann::json Take(const LaunchMethod& launch) const;
  // Returns its id.
  std::string Keep(const nlohmann::json& outcome) const;

  const StoreLock& lock_;
  const Store& store_;
  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  std::function<void(const std::string&)> say_;
  CellConfig config_;
  std::string system_hash_;
  nlohmann::json of_trials_;
  std::vector<std::string> ran_;  // ids
};

}  // namespace sparfuse::harness

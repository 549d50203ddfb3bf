// Launches the measurement of a fingerprint, ranks as a trial's and no trial; and takes one before
// the live trials of a run and one after them.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/records/profile.hpp"
#include "harness/run/plan/trial_plan.hpp"
#include "harness/run/run_options.hpp"
#include "harness/store/store.hpp"
#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

// Raised where what a fingerprint measures changes: those of unlike revisions are not compared.
inline constexpr int kFingerprintRevision = 1;

// Of so many ranks, all of a node unless said otherwise.
CellConfig FingerprintConfig(int ranks);

// The outcome as results/systems/NAME.fingerprint.json has it: the fingerprint, and a profile with
// the links that a model computes with; nothing where it was interrupted.
//
// options: root, worker and launcher. results: the folder that the lock is of; what the launch
// needs lies in fingerprints/.taking while it runs. tick: hears seconds and what is measured, a few
// times a second. Throws what the ranks failed with, and Error{kConfig} where ranks ended up on
// other hosts than they should.
std::optional<ProfileOutcome> TakeFingerprint(
    const StoreLock& lock, const CellConfig& config, const RunOptions& options,
    const std::filesystem::path& results, const std::atomic<bool>& interrupted,
    const std::function<void(double, const std::string&)>& tick);

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
  // What each trial between has of it, with its id and time; nothing where none was taken.
  const std::optional<Fingerprint>& OfTrials() const noexcept { return of_trials_; }
  // A trial between that ended and has it.
  void Ran(const std::string& trial_id) { ran_.push_back(trial_id); }
  // Measures again, keeps that too, and says what has changed meanwhile; the trials between say it
  // from then on, as "changed" of their fingerprint. launch: of now, without hosts that were left
  // out since.
  void After(const LaunchMethod& launch);

 private:
  std::optional<ProfileOutcome> Take(const LaunchMethod& launch) const;
  // Returns its id.
  std::string Keep(ProfileOutcome outcome) const;

  const StoreLock& lock_;
  const Store& store_;
  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  std::function<void(const std::string&)> say_;
  CellConfig config_;
  std::string system_hash_;
  std::optional<Fingerprint> of_trials_;
  std::vector<std::string> ran_;  // ids
};

}  // namespace sparfuse::harness

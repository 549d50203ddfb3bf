// Launches the measurement of a fingerprint, with ranks like a trial's. Takes one before the live
// trials of a run and one after them.
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

// Raised if the measurements of a fingerprint change. Fingerprints of different revisions are not
// compared.
inline constexpr int kFingerprintRevision = 1;

// The configuration for this number of ranks, all of one node unless changed.
CellConfig FingerprintConfig(int ranks);

// The outcome in the form of results/systems/NAME.fingerprint.json: the fingerprint, and a profile
// with the links for the model; nothing if it was interrupted.
//
// options: root, worker and launcher. results: the folder of the lock; files of the launch are in
// fingerprints/.taking while it runs. tick: gets the seconds and the current measurement, a few
// times a second. Throws the errors of the ranks, and Error{kConfig} if ranks are on the wrong
// hosts.
std::optional<ProfileOutcome> TakeFingerprint(
    const StoreLock& lock, const CellConfig& config, const RunOptions& options,
    const std::filesystem::path& results, const std::atomic<bool>& interrupted,
    const std::function<void(double, const std::string&)>& tick);

// Runs over several hosts of at least so many live trials take fingerprints unless told not to:
// they are seconds then, and links between hosts change.
inline constexpr std::size_t kLongRun = 20;

class RunFingerprints {
 public:
  // All outlive this object. say: prints a line for the user who started the run.
  RunFingerprints(const StoreLock& lock, const Store& store, const RunOptions& options,
                  const std::atomic<bool>& interrupted,
                  std::function<void(const std::string&)> say);

  // If options ask for it: measures the machine's own links, on the ranks of the largest trial, and
  // keeps the result as results/fingerprints/SYSTEM/TIME.json. If the user asked for it, throws the
  // errors of TakeFingerprint; else prints why there is none.
  void Before(const TrialPlan& live);
  // The fingerprint's entry in each trial in between, with its id and time; nothing if none was
  // taken.
  const std::optional<Fingerprint>& OfTrials() const noexcept { return of_trials_; }
  // A trial between that ended and has it.
  void Ran(const std::string& trial_id) { ran_.push_back(trial_id); }
  // Measures again, keeps that result too, and prints the changes. From then on the trials in
  // between have them as "changed" of their fingerprint. launch: the current one, without hosts
  // that were left out in the meantime.
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

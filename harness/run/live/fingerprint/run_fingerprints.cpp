#include "harness/run/live/fingerprint/run_fingerprints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/clusters/profile_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/run/live/fingerprint/take_fingerprint.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/systems/fingerprint.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kMachineDigits = 12;  // of its hash, in names

bool IsWanted(const RunOptions& options, std::size_t trials) {
  if (trials == 0) return false;
  return options.fingerprint.value_or(options.launch.across_hosts() && trials >= kLongRun);
}

const PlannedTrial& Largest(const TrialPlan& live) {
  return *std::ranges::max_element(live.trials, {},
                                   [](const PlannedTrial& trial) { return trial.config.workers; });
}

// Configuration of a fingerprint of as many ranks as a trial has.
CellConfig ConfigOf(const CellConfig& largest) {
  CellConfig config = FingerprintConfig(largest.workers);
  // A link that is emulated is between ranks of this machine.
  if (!largest.link) config.ranks_per_node = std::min(largest.ranks_per_node, largest.workers);
  config.threads_per_worker = largest.threads_per_worker;
  config.device = largest.device;
  config.transport = largest.transport;
  return config;
}

}  // namespace

RunFingerprints::RunFingerprints(const StoreLock& lock, const Store& store,
                                 const RunOptions& options, const std::atomic<bool>& interrupted,
                                 std::function<void(const std::string&)> say)
    : lock_(lock),
      store_(store),
      options_(options),
      interrupted_(interrupted),
      say_(std::move(say)) {}

json RunFingerprints::Take(const LaunchMethod& launch) const {
  const Interruption interruption;
  RunOptions options = options_;
  options.launch = launch;
  return TakeFingerprint(lock_, config_, options, store_.results(), interrupted_,
                         [](double, const std::string&) {});
}

std::string RunFingerprints::Keep(const json& outcome) const {
  std::string time = outcome.at("started_utc");
  std::ranges::replace(time, ':', '-');
  const std::string id = fmt::format("{}/{}", system_hash_.substr(0, kMachineDigits), time);
  json kept = outcome;
  kept["machine"].erase("placement");
  WriteProfiles(store_.results() / "fingerprints" / (id + ".json"), json::array({std::move(kept)}));
  return id;
}

void RunFingerprints::Before(const TrialPlan& live) {
  if (!IsWanted(options_, live.trials.size())) return;
  const PlannedTrial& largest = Largest(live);
  config_ = ConfigOf(largest.config);
  system_hash_ = ContentHash(largest.system);
  say_("measuring the fingerprint of the system");
  try {
    const json outcome = Take(options_.launch);
    if (outcome.is_null()) return;
    of_trials_ = outcome.at("fingerprint");
    of_trials_["id"] = Keep(outcome);
    of_trials_["taken_utc"] = outcome.at("started_utc");
  } catch (const Error& error) {
    if (options_.fingerprint) throw;
    say_(fmt::format("warning: no fingerprints of this run: {}", error.what()));
  }
}

void RunFingerprints::Ran(const Trial& trial) {
  if (!trial.fingerprint.is_null()) ran_.push_back(trial.trial_id);
}

void RunFingerprints::After(const LaunchMethod& launch) {
  if (of_trials_.is_null() || interrupted_) return;
  say_("measuring the fingerprint of the system again");
  try {
    json outcome = Take(launch);
    if (outcome.is_null()) return;
    outcome["before"] = of_trials_.at("id");
    const auto differences = DifferencesOf(of_trials_, outcome.at("fingerprint"));
    for (const FingerprintDifference& difference : differences) {
      const std::string sentence = SentenceOf(difference, "the beginning", "the end");
      outcome["changed"].push_back(sentence);
      say_("warning: the system changed during this run: " + sentence);
    }
    Keep(outcome);
    if (!outcome.contains("changed")) return;
    for (const std::string& id : ran_)
      store_.Amend(lock_, id, {{"fingerprint", {{"changed", outcome["changed"]}}}});
  } catch (const Error& error) {
    say_(fmt::format("warning: no fingerprint after this run: {}", error.what()));
  }
}

}  // namespace sparfuse::harness

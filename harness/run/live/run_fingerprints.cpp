#include "harness/run/live/run_fingerprints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launch_method.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/outcome.hpp"
#include "harness/run/live/ship/shipping.hpp"
#include "harness/systems/fingerprint.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTimeoutSeconds = 300;

void RemoveFolder(const fs::path& folder) {
  if (!SomethingIsAt(folder)) return;
  RemoveSession(folder / kSessionRecord);
  fs::remove_all(folder);
}

// Makes an empty folder, without the files that a killed call left.
fs::path MakeFolder(const fs::path& results) {
  const fs::path folder = fs::absolute(results / "fingerprints" / ".taking");
  RemoveFolder(folder);
  MakeDirectories(folder);
  return folder;
}

[[noreturn]] void Fail(const Failure& failure, const fs::path& folder) {
  const std::string why = fmt::format("the fingerprint was not measured: {} ({})", failure.message,
                                      (folder / "log.txt").string());
  if (failure.kind == "config") SPARFUSE_THROW(kConfig, why);
  if (failure.kind == "timeout") SPARFUSE_THROW(kTimeout, why);
  if (failure.kind == "unsupported") SPARFUSE_THROW(kUnsupported, why);
  SPARFUSE_THROW(kInternal, why);
}

constexpr std::size_t kMachineDigits = 12;  // digits of the machine's hash in names

bool IsWanted(const RunOptions& options, std::size_t trials) {
  if (trials == 0) return false;
  return options.fingerprint.value_or(options.launch.across_hosts() && trials >= kLongRun);
}

const PlannedTrial& Largest(const TrialPlan& live) {
  return *std::ranges::max_element(live.trials, {},
                                   [](const PlannedTrial& trial) { return trial.config.workers; });
}

// The configuration of a fingerprint with as many ranks as a trial.
CellConfig ConfigOf(const CellConfig& largest) {
  CellConfig config = FingerprintConfig(largest.workers);
  // An emulated link is between ranks of this machine.
  if (!largest.link) config.ranks_per_node = std::min(largest.ranks_per_node, largest.workers);
  config.threads_per_worker = largest.threads_per_worker;
  config.device = largest.device;
  config.transport = largest.transport;
  return config;
}

}  // namespace

CellConfig FingerprintConfig(int ranks) {
  CellConfig config;
  config.kind = TrialKind::kFingerprint;
  config.workers = ranks;
  config.ranks_per_node = ranks;
  return config;
}

std::optional<ProfileOutcome> TakeFingerprint(
    const StoreLock& /*lock*/, const CellConfig& config, const RunOptions& options,
    const fs::path& results, const std::atomic<bool>& interrupted,
    const std::function<void(double, const std::string&)>& tick) {
  CheckMayLaunch(options.launch);
  CheckMayLaunch(config, options.launch);
  const fs::path folder = MakeFolder(results);
  WriteFileDurably(folder / "config.json",
                   ToJson(TrialConfig{config, 0, 0, "fingerprint"}).dump(1) + "\n");
  const std::vector<fs::path> folders = {folder};
  const std::string nonce = Nonce();
  const bool threads = config.transport == Transport::kThreads;
  std::optional<Shipping> shipping;
  if (options.ship && !threads)
    shipping.emplace(options.launch, Collect(options.worker, {}, {}), interrupted);
  const std::vector<fs::path> places = shipping ? shipping->Send(folders, nonce) : folders;
  const fs::path worker = shipping ? shipping->worker() : options.worker;
  const LaunchedWork work{config, worker, places, kTimeoutSeconds, nonce};
  LaunchRequest request =
      RequestOf(work, options.launch, shipping ? shipping->environment() : Environment(), folder);
  PhaseLimits limits = PhaseLimits::OfEnvironment();
  limits.start += config.deadline_seconds;
  LaunchWatch watch(folders, !threads, limits);
  request.watch = &watch;
  const std::string started = UtcNow();
  const LaunchResult end =
      Launch(request, interrupted, [&](double elapsed) { tick(elapsed, WhatItDoes(request.log)); });
  if (shipping) {
    for (const std::string& problem : shipping->Fetch(folders, nonce))
      fmt::print(options.progress, "warning: {}\n", problem);
  }
  if (end.end == LaunchResult::End::kInterrupted) {
    RemoveFolder(folder);
    return std::nullopt;
  }
  const Outcome judged = CollectOutcome(folder, end, kTimeoutSeconds);
  if (judged.failure) Fail(*judged.failure, folder);
  json outcome = ReadJsonFile(folder / "outcome.json");
  for (const char* key : {"reason", "checks", "metrics"}) outcome.erase(key);
  if (options.launch.across_hosts()) {
    const auto placement = outcome.at("machine").value("placement", std::vector<std::string>());
    CheckPlacement(ReadPrivateFacts(folder).NamesOf(placement), config, options.launch);
  }
  outcome["config"] = ToJson(config);
  outcome["system"] = ToJson(DescribeSystem());
  outcome["source"] = ToJson(DescribeSource(options.root.string()));
  outcome["revisions"] = {{"fingerprint", kFingerprintRevision}};
  outcome["started_utc"] = started;
  outcome["seconds"] = end.seconds;
  RemoveFolder(folder);
  return ProfileOutcomeOf(outcome, "the fingerprint's outcome");
}

RunFingerprints::RunFingerprints(const StoreLock& lock, const Store& store,
                                 const RunOptions& options, const std::atomic<bool>& interrupted,
                                 std::function<void(const std::string&)> say)
    : lock_(lock),
      store_(store),
      options_(options),
      interrupted_(interrupted),
      say_(std::move(say)) {}

std::optional<ProfileOutcome> RunFingerprints::Take(const LaunchMethod& launch) const {
  const Interruption interruption;
  RunOptions options = options_;
  options.launch = launch;
  return TakeFingerprint(lock_, config_, options, store_.results(), interrupted_,
                         [](double, const std::string&) {});
}

std::string RunFingerprints::Keep(ProfileOutcome outcome) const {
  std::string time = outcome.started_utc;
  std::ranges::replace(time, ':', '-');
  const std::string id = fmt::format("{}/{}", system_hash_.substr(0, kMachineDigits), time);
  outcome.machine.erase("placement");
  WriteProfiles(store_.results() / "fingerprints" / (id + ".json"), {std::move(outcome)});
  return id;
}

void RunFingerprints::Before(const TrialPlan& live) {
  if (!IsWanted(options_, live.trials.size())) return;
  const PlannedTrial& largest = Largest(live);
  config_ = ConfigOf(largest.config);
  system_hash_ = HashOf(largest.system);
  say_("measuring the fingerprint of the system");
  try {
    const auto outcome = Take(options_.launch);
    if (!outcome) return;
    const std::string id = Keep(*outcome);
    of_trials_ = outcome->fingerprint;
    of_trials_->id = id;
    of_trials_->taken_utc = outcome->started_utc;
  } catch (const Error& error) {
    if (options_.fingerprint) throw;
    say_(fmt::format("warning: no fingerprints of this run: {}", error.what()));
  }
}

void RunFingerprints::After(const LaunchMethod& launch) {
  if (!of_trials_ || interrupted_) return;
  say_("measuring the fingerprint of the system again");
  try {
    auto outcome = Take(launch);
    if (!outcome) return;
    outcome->beside["before"] = of_trials_->id;
    std::vector<std::string> changed;
    for (const auto& difference : DifferencesOf(*of_trials_, *outcome->fingerprint)) {
      changed.push_back(SentenceOf(difference, "the beginning", "the end"));
      say_("warning: the system changed during this run: " + changed.back());
    }
    if (!changed.empty()) outcome->beside["changed"] = changed;
    Keep(*outcome);
    if (changed.empty()) return;
    for (const std::string& id : ran_)
      store_.Amend(lock_, id, {{"fingerprint", {{"changed", changed}}}});
  } catch (const Error& error) {
    say_(fmt::format("warning: no fingerprint after this run: {}", error.what()));
  }
}

}  // namespace sparfuse::harness

#include "harness/run/live/fingerprint/take_fingerprint.hpp"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/launch/placement.hpp"
#include "harness/run/live/launch/session_folder.hpp"
#include "harness/run/live/outcome.hpp"
#include "harness/run/live/ship/shipping.hpp"

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

// Without what a killed call left there.
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

}  // namespace

CellConfig FingerprintConfig(int ranks) {
  CellConfig config;
  config.kind = TrialKind::kFingerprint;
  config.workers = ranks;
  config.ranks_per_node = ranks;
  return config;
}

json TakeFingerprint(const StoreLock& /*lock*/, const CellConfig& config, const RunOptions& options,
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
  LaunchRequest request;
  request.timeout_seconds = kTimeoutSeconds;
  const LaunchedWork work{config, worker, places, request.timeout_seconds, nonce};
  request.environment = LaunchEnvironment(work, options.launch);
  if (shipping) {
    for (auto& variable : shipping->environment()) request.environment.push_back(variable);
  }
  request.argv = LaunchCommand(work, options.launch, request.environment);
  request.ender = LaunchEnder(options.launch, nonce);
  PhaseLimits limits = PhaseLimits::OfEnvironment();
  limits.start += config.deadline_seconds;
  LaunchWatch watch(folders, !threads, limits);
  request.why_to_end = [&](double elapsed, const LaunchSaid& said) {
    return watch.WhyToEnd(elapsed, said);
  };
  request.log = folder / "log.txt";
  if (!threads && !options.launch.across_hosts()) request.session = folder / kSessionRecord;
  const std::string started = UtcNow();
  const LaunchResult end =
      Launch(request, interrupted, [&](double elapsed) { tick(elapsed, WhatItDoes(request.log)); });
  if (shipping) {
    for (const std::string& problem : shipping->Fetch(folders, nonce))
      fmt::print(options.progress, "warning: {}\n", problem);
  }
  if (end.end == LaunchResult::End::kInterrupted) {
    RemoveFolder(folder);
    return nullptr;
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
  return outcome;
}

}  // namespace sparfuse::harness

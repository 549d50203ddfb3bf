#include "harness/run/live/live_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/hosts/preflight.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/launch/session_folder.hpp"
#include "harness/run/live/launch/trial_log.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

}  // namespace

TrialLaunch EndedLaunch::PutNamesApart() const {
  TrialLaunch shown;
  for (const fs::path& directory : directories) {
    shown = record;
    PrivateFacts facts = ReadPrivateFacts(directory);
    TakeNames(shown, facts);
    WritePrivateFacts(directory, facts);
  }
  return shown;
}

LiveLaunches::LiveLaunches(const Catalog& catalog, const RunOptions& options,
                           const std::atomic<bool>& interrupted)
    : options_(options), interrupted_(interrupted) {
  PhaseLimits::OfEnvironment();  // reports a mistake in it before anything runs
  if (options_.ship) {
    shipping_.emplace(options_.launch,
                      Collect(options_.worker, options_.data, DataFilesOf(catalog)), interrupted_);
  }
  if (options_.launch.across_hosts())
    nodes_.emplace(options_.launch, ChoosableNodes(options_.launch));
}

EndedLaunch LiveLaunches::Run(const std::vector<LiveTrial>& trials, int number,
                              Progress& progress) {
  const CellConfig& config = trials.front().planned->config;
  std::vector<fs::path> directories;
  LaunchRequest request;
  request.timeout_seconds = 0;
  for (const LiveTrial& trial : trials) {
    directories.push_back(trial.directory);
    request.timeout_seconds += trial.planned->timeout_seconds;
  }
  const LaunchMethod method = Method(directories.front() / "hostfile", NodesOf(config));
  const bool away = shipping_ && config.transport != Transport::kThreads;
  if (away && config.transport == Transport::kTcp) {
    SPARFUSE_THROW(kConfig,
                   "transport = \"tcp\" with --ship: ranks leave their addresses in the trial's "
                   "folder; expected a results folder that all hosts see, or transport = \"mpi\"");
  }
  const std::string nonce = Nonce();
  request.log = directories.front() / "log.txt";
  std::string not_sent;  // reason
  std::vector<fs::path> places = directories;
  try {
    if (away && !nodes_->nodes().empty()) shipping_->Use(nodes_->NodesFor(NodesOf(config)));
    if (away) places = shipping_->Send(directories, nonce);
  } catch (const Error& error) {
    not_sent = error.what();
    WriteFileDurably(request.log, "error: " + not_sent + "\n");
  }
  const fs::path worker = away ? shipping_->worker() : options_.worker;
  const LaunchedWork work{config, worker, places, request.timeout_seconds, nonce};
  request.environment = LaunchEnvironment(work, method);
  if (away) {
    for (auto& variable : shipping_->environment()) request.environment.push_back(variable);
  }
  request.argv = LaunchCommand(work, method, request.environment);
  request.ender = LaunchEnder(method, work.nonce);
  PhaseLimits limits = PhaseLimits::OfEnvironment();
  limits.start += config.deadline_seconds;
  limits.silence = 0;
  for (const LiveTrial& trial : trials)
    limits.silence = std::max(*limits.silence, trial.planned->timeout_seconds);
  limits.setup = limits.silence;
  LaunchWatch watch(directories, config.transport != Transport::kThreads, limits);
  request.why_to_end = [&](double elapsed, const LaunchSaid& said) {
    return watch.WhyToEnd(elapsed, said);
  };
  // Other hosts lack a folder in this host's memory.
  if (!StartsItsRanks(config, method) && !method.across_hosts())
    request.session = directories.front() / kSessionRecord;
  EndedLaunch ended;
  HowItRan& how = ended.how;
  how.across_hosts = method.across_hosts() && config.transport != Transport::kThreads;
  how.started = UtcNow();
  const auto interfaces = ReadInterfaces();
  ended.end = !not_sent.empty()
                  ? LaunchResult{.end = interrupted_ ? LaunchResult::End::kInterrupted
                                                     : LaunchResult::End::kStopped,
                                 .why = not_sent}
                  : Launch(request, interrupted_, [&](double elapsed) {
                      progress.Tick(elapsed, progress.terminal() ? WhatItDoes(request.log) : "");
                    });
  if (away && ended.end.end == LaunchResult::End::kInterrupted) {
    shipping_->Forget(nonce);
  } else if (away && not_sent.empty()) {
    for (const std::string& problem : shipping_->Fetch(directories, nonce))
      progress.Say("warning: " + problem);
  }
  if (ended.end.end == LaunchResult::End::kInterrupted) return ended;
  ended.log = request.log;
  ended.timeout_seconds = request.timeout_seconds;
  how.argv = request.argv;
  how.environment = DescribeEnvironment();
  for (const auto& [name, value] : request.environment) how.environment[name] = value;
  TrialLaunch& record = ended.record;
  static_cast<LaunchHosts&>(record) = TakeHostRecord(directories.front());
  record.id = fmt::format("{}.{}", trials.front().id, number);
  record.trials = static_cast<int>(trials.size());
  if (!record.network) {
    record.network = TrafficOfHosts(
        {HostName()},
        {DescribeTraffic(interfaces, ReadInterfaces(), method.interface, method.across_hosts())});
  }
  for (const std::string& warning : WarningsOf(record)) progress.Say("warning: " + warning);
  if (nodes_ && watch.start_was_late() && !method.hostfile.empty()) {
    progress.Say("ranks did not meet: trying each host alone");
    ended.silent = SilentHosts(method, worker, directories.front(), limits.start);
  }
  ended.directories = std::move(directories);
  return ended;
}

std::vector<Blame> LiveLaunches::SilentHosts(const LaunchMethod& method, const fs::path& worker,
                                             const fs::path& folder, double start_seconds) const {
  PreflightRequest request;
  request.method = method;
  request.worker = worker;
  request.results = folder;
  request.timeout_seconds = std::min(request.timeout_seconds, start_seconds);
  if (shipping_) request.environment = shipping_->environment();
  std::vector<Blame> silent;
  for (const HostFailure& failure : HostsThatDoNotStart(request, interrupted_))
    silent.push_back({failure.host, failure.why});
  return silent;
}

void LiveLaunches::Judge(const std::vector<const LiveTrial*>& ended,
                         const std::vector<Outcome>& outcomes, EndedLaunch& launch,
                         Progress& progress) {
  if (!nodes_) return;
  LaunchFailure failed{ReadEndOfFile(launch.log, kLogEndBytes), {}, {}, launch.silent};
  if (!ended.empty()) failed.needed = NodesOf(ended.front()->planned->config);
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (!outcomes[i].failure) continue;
    if (failed.trials.empty()) failed.failure = *outcomes[i].failure;
    failed.trials.push_back(*ended[i]->planned);
  }
  const std::string said = nodes_->Judge(failed, launch.record);
  if (!said.empty()) progress.Say("warning: " + said);
}

std::vector<PlannedTrial> LiveLaunches::TakeFailed() {
  return nodes_ ? nodes_->TakeFailed() : std::vector<PlannedTrial>();
}

}  // namespace sparfuse::harness

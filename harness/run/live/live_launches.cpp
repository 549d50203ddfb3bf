#include "harness/run/live/live_launches.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/ship/node_channel.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;

constexpr int kMostFailures = 2;

// The rank that a failure is about. Another rank may have reported it.
std::optional<std::size_t> RankIn(const Failure& failure) {
  if (failure.signal && failure.rank) return static_cast<std::size_t>(*failure.rank);
  static const Expression kSilent("rank (\\d+) does not answer", "a silent rank");
  std::vector<std::string_view> found;
  if (!kSilent.Find(failure.message, found)) return std::nullopt;
  return std::stoul(std::string(found[1]));
}

// Schedulers, hostfiles and hosts may disagree on domains.
std::string ShortName(const std::string& host) { return host.substr(0, host.find('.')); }

bool IsOfAName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
}

// Whether the line has the node as a word: "n1" is in "slurmstepd-n1:", but not in "n12".
bool Names(const std::string& line, const std::string& node) {
  for (auto at = line.find(node); at != std::string::npos; at = line.find(node, at + 1)) {
    const std::size_t end = at + node.size();
    if ((at == 0 || !IsOfAName(line[at - 1])) && (end == line.size() || !IsOfAName(line[end])))
      return true;
  }
  return false;
}

// Whether a launcher, or a program that it starts ranks with, reports an error.
bool TellsOfTrouble(std::string_view line) {
  static const Expression kTrouble(
      "(?i)error|fail|unable|lost|refused|no route|timed out|could not|cannot|unreachable",
      "a line of trouble");
  return kTrouble.FoundIn(line);
}

}  // namespace

HostFailure NodeToBlame(const std::vector<std::string>& nodes, const TrialLaunch& launch,
                        const Failure& failure, const std::string& log) {
  const std::string& kind = failure.kind;
  const std::vector<std::string> hosts =
      launch.binding ? launch.binding->hosts : std::vector<std::string>();
  if (const auto rank = RankIn(failure); rank && *rank < hosts.size()) {
    const std::string host = ShortName(hosts[*rank]);
    const auto node = std::ranges::find(nodes, host, ShortName);
    return node == nodes.end() ? HostFailure{} : HostFailure{*node, failure.message};
  }
  if (kind != "comm" && kind != "timeout" && kind != "internal") return {};
  std::map<std::string, std::string> named;  // the first line that names each node
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!TellsOfTrouble(line)) continue;
    for (const std::string& node : nodes) {
      if (Names(line, node)) named.try_emplace(node, line);
    }
  }
  if (named.size() != 1) return {};
  return {named.begin()->first, named.begin()->second};
}

NodeFailures::NodeFailures(const LaunchMethod& method, std::vector<std::string> nodes)
    : method_(method), nodes_(std::move(nodes)) {}

std::string NodeFailures::Count(const std::string& node, int needed, const std::string& why) {
  const int failures = ++failures_[node];
  if (failures < kMostFailures || std::ranges::find(left_out_, node) != left_out_.end()) return "";
  const std::string said =
      fmt::format("{} launches failed on {} (the last: {})", failures, node, why);
  if (nodes_.size() <= left_out_.size() + static_cast<std::size_t>(needed))
    return fmt::format("{}; no other node can take its place", said);
  left_out_.push_back(node);
  return fmt::format("{}: it is left out from here on", said);
}

std::string NodeFailures::Judge(const LaunchFailure& failed, TrialLaunch& launch) {
  if (LeavesSomeOut(failed.needed)) launch.left_out = left_out_;
  if (failed.trials.empty()) return "";
  std::vector<HostFailure> blamed = failed.silent;
  if (blamed.empty()) blamed.push_back(NodeToBlame(nodes_, launch, failed.failure, failed.log));
  if (blamed.front().host.empty()) return "";
  launch.failed_on = blamed.front().host;
  std::vector<std::string> said;
  for (const auto& [node, why] : blamed) {
    std::vector<PlannedTrial>& failures = failed_on_[node];
    // Of several nodes, the first one records the trials that must run again.
    if (&node == &blamed.front().host)
      failures.insert(failures.end(), failed.trials.begin(), failed.trials.end());
    const std::size_t before = left_out_.size();
    if (std::string words = Count(node, failed.needed, why); !words.empty())
      said.push_back(std::move(words));
    if (left_out_.size() == before) continue;
    elsewhere_.insert(elsewhere_.end(), failures.begin(), failures.end());
    failures.clear();
  }
  return fmt::format("{}", fmt::join(said, "; "));
}

bool NodeFailures::LeavesSomeOut(int needed) const {
  return !left_out_.empty() && nodes_.size() >= left_out_.size() + static_cast<std::size_t>(needed);
}

std::vector<std::string> NodeFailures::NodesFor(int needed) const {
  std::vector<std::string> nodes = nodes_;
  if (LeavesSomeOut(needed)) {
    std::erase_if(nodes, [&](const std::string& node) {
      return std::ranges::find(left_out_, node) != left_out_.end();
    });
  }
  return nodes;
}

LaunchMethod NodeFailures::Method(const fs::path& file, int needed) const {
  LaunchMethod method = method_;
  if (!LeavesSomeOut(needed)) return method;
  if (method.hostfile.empty()) {
    method.left_out = left_out_;
    return method;
  }
  WriteFileDurably(file, LinesOfHosts(method.hostfile, [&](const std::string& name) {
                     return std::ranges::find(left_out_, name) == left_out_.end();
                   }));
  method.hostfile = file;  // now in mpirun's form
  method.mpirun_hostfile.clear();
  return method;
}

std::vector<std::string> ChoosableNodes(const LaunchMethod& method) {
  const bool hostfile = !method.hostfile.empty();
  if (!hostfile && method.kind != LaunchMethod::Kind::kSrun) return {};
  return NodesOf(method);
}

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
  double timeout_seconds = 0;
  for (const LiveTrial& trial : trials) {
    directories.push_back(trial.directory);
    timeout_seconds += trial.planned->timeout_seconds;
  }
  const LaunchMethod method = Method(directories.front() / "hostfile", NodesOf(config));
  const bool away = shipping_ && config.transport != Transport::kThreads;
  if (away && config.transport == Transport::kTcp) {
    SPARFUSE_THROW(kConfig,
                   "transport = \"tcp\" with --ship: ranks leave their addresses in the trial's "
                   "folder; expected a results folder that all hosts see, or transport = \"mpi\"");
  }
  const std::string nonce = Nonce();
  std::string not_sent;  // reason
  std::vector<fs::path> places = directories;
  try {
    if (away && !nodes_->nodes().empty()) shipping_->Use(nodes_->NodesFor(NodesOf(config)));
    if (away) places = shipping_->Send(directories, nonce);
  } catch (const Error& error) {
    not_sent = error.what();
    WriteFileDurably(directories.front() / "log.txt", "error: " + not_sent + "\n");
  }
  const fs::path worker = away ? shipping_->worker() : options_.worker;
  const LaunchedWork work{config, worker, places, timeout_seconds, nonce};
  LaunchRequest request =
      RequestOf(work, method, away ? shipping_->environment() : Environment(), directories.front());
  PhaseLimits limits = PhaseLimits::OfEnvironment();
  limits.start += config.deadline_seconds;
  limits.silence = 0;
  for (const LiveTrial& trial : trials)
    limits.silence = std::max(*limits.silence, trial.planned->timeout_seconds);
  limits.setup = limits.silence;
  LaunchWatch watch(directories, config.transport != Transport::kThreads, limits);
  request.watch = &watch;
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

std::vector<HostFailure> LiveLaunches::SilentHosts(const LaunchMethod& method,
                                                   const fs::path& worker, const fs::path& folder,
                                                   double start_seconds) const {
  PreflightRequest request;
  request.method = method;
  request.worker = worker;
  request.results = folder;
  request.timeout_seconds = std::min(request.timeout_seconds, start_seconds);
  if (shipping_) request.environment = shipping_->environment();
  return HostsThatDoNotStart(request, interrupted_);
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

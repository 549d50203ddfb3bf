#include "harness/run/live/hosts/preflight.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ranges>
#include <set>
#include <sstream>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/binding.hpp"
#include "harness/records/record.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/ship/node_channel.hpp"
#include "harness/run/live/ship/shipping.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFolder = "preflight-";

// Removes the folders that killed calls left. Processes of other hosts may share the results
// folder, but no call takes so long.
void RemoveOlder(const fs::path& results) {
  constexpr auto kLongAgo = std::chrono::hours(1);
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(results, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFolder) || !entry.is_directory(none)) continue;
    const bool digits = std::ranges::all_of(name.substr(std::strlen(kFolder)),
                                            [](unsigned char c) { return std::isdigit(c) != 0; });
    const auto written = fs::last_write_time(entry.path(), none);
    if (digits && !none && fs::file_time_type::clock::now() - written > kLongAgo)
      fs::remove_all(entry.path(), none);
  }
}

// A folder that is removed with this object.
class LaunchFolder {
 public:
  explicit LaunchFolder(const fs::path& results)
      : path_(fs::absolute(results) / fmt::format("{}{}", kFolder, getpid())),
        made_results_(!fs::exists(results)) {
    RemoveOlder(path_.parent_path());
    std::error_code error;
    fs::create_directories(path_, error);
    if (error)
      SPARFUSE_THROW(kData, fmt::format("cannot make {}: {}", path_.string(), error.message()));
  }
  ~LaunchFolder() {
    std::error_code none;
    fs::remove_all(path_, none);
    if (made_results_) fs::remove(path_.parent_path(), none);  // removes only an empty folder
  }
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;
  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
  bool made_results_;
};

struct Launched {
  std::vector<HostFacts> ranks;
  std::string why;  // why it did not end well; or ""
};

class Preflights {
 public:
  Preflights(const PreflightRequest& request, const std::atomic<bool>& interrupted)
      : request_(request), interrupted_(interrupted), folder_(request.results) {}

  Launched Run(const LaunchMethod& method, int ranks, int ranks_per_node) const {
    CellConfig config;
    config.workers = ranks;
    config.ranks_per_node = ranks_per_node;
    CheckMayLaunch(config, method);
    const std::string nonce = Nonce();
    WriteFileDurably(folder_.path() / kPreflightSeen, nonce);
    const std::vector<fs::path> argument = {folder_.path()};
    const LaunchedWork work{config, request_.worker, argument, request_.timeout_seconds, nonce};
    Environment environment = request_.environment;
    environment.emplace_back(kPreflightVariable, "1");
    LaunchRequest launch = RequestOf(work, method, environment, folder_.path());
    launch.session.clear();
    const LaunchResult end = Launch(launch, interrupted_, {});
    const std::string log = ReadFile(launch.log);
    Launched launched{ReadFacts(log), ""};
    const bool well = end.end == LaunchResult::End::kExited && end.exit_code == 0;
    if (well && launched.ranks.size() == static_cast<std::size_t>(ranks)) return launched;
    launched.why = WhyOf(end, log, launched.ranks);
    return launched;
  }

  const fs::path& folder() const noexcept { return folder_.path(); }

 private:
  std::string WhyOf(const LaunchResult& end, const std::string& log,
                    const std::vector<HostFacts>& ranks) const {
    for (const HostFacts& rank : ranks) {
      if (!rank.error.empty()) return rank.error;
    }
    std::string why = end.end == LaunchResult::End::kTimeout
                          ? fmt::format("ranks did not end within {} s", request_.timeout_seconds)
                      : end.end == LaunchResult::End::kExited
                          ? fmt::format("the launcher exited with status {}", end.exit_code)
                          : "the launcher was ended by a signal";
    if (const std::string words = LastWords(log); !words.empty()) why += ": " + words;
    return why;
  }

  const PreflightRequest& request_;
  const std::atomic<bool>& interrupted_;
  LaunchFolder folder_;
};

// The program that starts ranks may not tell their hosts. Then --ranks has one rank on each host.
int HostsOfRanks(const PreflightRequest& request) {
  const LaunchMethod& method = request.method;
  if (!method.across_hosts()) return 1;
  const bool known = !method.hostfile.empty() || std::getenv("SLURM_JOB_NODELIST") != nullptr;
  if (known && (method.kind != LaunchMethod::Kind::kTemplate || !method.hostfile.empty()))
    return static_cast<int>(NodesOf(method).size());
  if (request.ranks > 0) return request.ranks;
  SPARFUSE_THROW(kConfig,
                 "neither a --hostfile nor an allocation of Slurm states the number of hosts: "
                 "expected --ranks N, one a host");
}

Preflight TryEachAlone(const Preflights& preflights, const PreflightRequest& request,
                       const std::atomic<bool>& interrupted) {
  Preflight found;
  LaunchMethod one = request.method;
  one.hostfile = preflights.folder() / "hosts";
  one.mpirun_hostfile.clear();
  for (const Host& host : HostsOf(request.method)) {
    if (interrupted) break;
    WriteFileDurably(one.hostfile,
                     LinesOfHosts(request.method.hostfile,
                                  [&](const std::string& name) { return name == host.name; }));
    Launched alone = preflights.Run(one, 1, 1);
    if (!alone.why.empty() && !interrupted) found.failures.push_back({host.name, alone.why});
    for (HostFacts& facts : alone.ranks) {
      facts.rank = static_cast<int>(found.ranks.size());
      found.ranks.push_back(std::move(facts));
    }
  }
  return found;
}

}  // namespace

template <>
RecordKeys KeysOf<HostFacts>() {
  using F = HostFacts;
  static constexpr auto kKeys = KeyTable<F>(
      Key<&F::rank>({.name = "rank"}), Key<&F::host, F>({.name = "host"}),
      Key<&F::cores, F>({.name = "cores", .later = true}),
      Key<&F::numa, F>({.name = "numa", .later = true}),
      Key<&F::visible_cards, F>({.name = "visible_cards", .later = true}),
      Key<&F::node, F>({.name = "node", .later = true}),
      Key<&F::worker>({.name = "worker", .later = true}),
      Key<&F::mpi>({.name = "mpi", .later = true}),
      Key<&F::cuda>({.name = "cuda", .later = true, .empty_is_null = true}),
      Key<&F::driver>({.name = "driver", .later = true, .empty_is_null = true}),
      Key<&F::nccl>({.name = "nccl", .later = true}),
      Key<&F::libraries>({.name = "libraries", .later = true}),
      Key<&F::cpu>({.name = "cpu", .later = true}),
      Key<&F::cards>({.name = "cards", .later = true}),
      Key<&F::memlock_bytes>({.name = "memlock_bytes", .unit = "bytes", .later = true}),
      Key<&F::shm_free_bytes>({.name = "shm_free_bytes", .unit = "bytes", .later = true}),
      Key<&F::interfaces>({.name = "interfaces", .later = true}),
      Key<&F::rdma>({.name = "rdma", .later = true}),
      Key<&F::sees_results>({.name = "sees_results", .later = true}),
      Key<&F::clock_ahead_seconds>(
          {.name = "clock_ahead_seconds", .unit = "seconds", .optional = true}),
      Key<&F::clock_uncertainty_seconds>(
          {.name = "clock_uncertainty_seconds", .unit = "seconds", .optional = true}),
      Key<&F::error>({.name = "error", .optional = true}));
  return kKeys;
}

std::vector<HostFacts> ReadFacts(const std::string& log) {
  std::map<int, json> by_rank;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find(kFactsLine);  // a launcher may print a label before it
    if (at == std::string::npos) continue;
    const json facts = json::parse(line.substr(at + std::strlen(kFactsLine)), nullptr, false);
    if (!facts.is_object() || !facts.contains("rank") || !facts["rank"].is_number_integer())
      continue;
    by_rank[facts["rank"]].update(facts);
  }
  std::vector<HostFacts> ranks;
  for (auto& [rank, facts] : by_rank) {
    if (facts.contains("host"))
      ReadRecord(facts, KeyPlace("a rank's findings"), ranks.emplace_back());
  }
  return ranks;
}

std::vector<HostFailure> HostsThatDoNotStart(const PreflightRequest& request,
                                             const std::atomic<bool>& interrupted) {
  return TryEachAlone(Preflights(request, interrupted), request, interrupted).failures;
}

Preflight RunPreflight(const PreflightRequest& request, const std::atomic<bool>& interrupted) {
  CheckMayLaunch(request.method);
  const int hosts = HostsOfRanks(request);
  const int ranks = request.ranks > 0 ? request.ranks : std::max(2, hosts);
  const Preflights preflights(request, interrupted);
  Launched all = preflights.Run(request.method, ranks, (ranks + hosts - 1) / hosts);
  Preflight found{std::move(all.ranks), {}};
  if (all.why.empty()) return found;
  const bool tried = !request.method.hostfile.empty() && hosts > 1;
  if (!tried || interrupted) {
    found.failures.push_back({"", all.why});
    return found;
  }
  found = TryEachAlone(preflights, request, interrupted);
  // Each host works alone, but together they do not.
  if (found.failures.empty()) found.failures.push_back({"", all.why});
  return found;
}

namespace {

using Level = Finding::Level;

constexpr double kLittleShm = 64 << 20;  // bytes a rank: Open MPI's segments
constexpr double kSkewSeconds = 1;       // more makes file times and logs of hosts misleading

// The facts of each host, from its first rank.
std::vector<HostFacts> Hosts(const std::vector<HostFacts>& ranks) {
  std::vector<HostFacts> hosts;
  for (const HostFacts& rank : ranks) {
    if (std::ranges::find(hosts, rank.host, &HostFacts::host) == hosts.end()) hosts.push_back(rank);
  }
  return hosts;
}

std::string InWords(const std::string& text) { return text.empty() ? "none" : text; }

std::string InWords(const std::optional<int>& number) {
  return number ? std::to_string(*number) : "none";
}

std::string InWords(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

std::set<std::string> SetOf(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

class HostsJudge {
 public:
  HostsJudge(const Preflight& preflight, const PreflightRequest& request)
      : preflight_(preflight), request_(request), hosts_(Hosts(preflight.ranks)) {}

  std::vector<Finding> Run() {
    Reached();
    if (hosts_.empty()) return std::move(findings_);
    Alike(
        &HostFacts::worker, "worker", Level::kError,
        fmt::format("the same file at {} on every host: copy it there, as in `scp {} HOST:{}`",
                    request_.worker.string(), request_.worker.string(), request_.worker.string()));
    Alike(&HostFacts::mpi, "MPI", Level::kError,
          "the same Open MPI, first in every host's LD_LIBRARY_PATH");
    Alike(&HostFacts::cuda, "CUDA", Level::kError, "the same CUDA runtime on every host");
    Alike(&HostFacts::nccl, "NCCL", Level::kError, "the same NCCL on every host");
    Libraries();
    Alike(&HostFacts::driver, "driver", Level::kWarning, "the same driver on every host");
    Alike(&HostFacts::cards, "cards", Level::kWarning,
          "the same cards: different nodes are a system of their own");
    Alike(&HostFacts::cpu, "processors", Level::kWarning,
          "the same processor: different nodes are a system of their own");
    Results();
    Interfaces();
    Limits();
    Clocks();
    const std::vector<RankBinding> ranks(preflight_.ranks.begin(), preflight_.ranks.end());
    if (const std::string hidden = WhoIsHidden(ranks); !hidden.empty())
      Add(Level::kWarning, "cards", hidden);
    return std::move(findings_);
  }

 private:
  void Add(Level level, const std::string& what, const std::string& message) {
    findings_.push_back({level, what, message});
  }

  void Reached() {
    std::vector<std::string> names;
    for (const HostFacts& host : hosts_) names.push_back(host.host);
    for (const HostFailure& failure : preflight_.failures) {
      Add(Level::kError, "reached",
          failure.host.empty() ? failure.why : failure.host + ": " + failure.why);
    }
    if (!preflight_.failures.empty()) return;
    Add(Level::kGood, "reached",
        fmt::format("{} rank(s) on {} host(s), which find one another: {}", preflight_.ranks.size(),
                    names.size(), fmt::join(names, ", ")));
  }

  template <class Value>
  void Alike(Value HostFacts::*fact, const std::string& what, Level level,
             const std::string& expected) {
    const HostFacts& first = hosts_.front();
    std::vector<std::string> others;
    for (const HostFacts& host : hosts_) {
      if (host.*fact != first.*fact)
        others.push_back(fmt::format("{} has {}", host.host, InWords(host.*fact)));
    }
    if (!others.empty()) {
      Add(level, what,
          fmt::format("{}, and {} {}: expected {}", fmt::join(others, ", "), first.host,
                      InWords(first.*fact), expected));
    } else if (first.*fact != Value()) {
      Add(Level::kGood, what, InWords(first.*fact));
    }
  }

  // Reports libraries that every host has loaded from different files.
  void Libraries() {
    const auto& first = hosts_.front().libraries;
    for (const HostFacts& host : hosts_) {
      std::vector<std::string> differ;
      for (const auto& [name, id] : first) {
        const auto own = host.libraries.find(name);
        if (own == host.libraries.end() || own->second != id) differ.push_back(name);
      }
      if (differ.empty()) continue;
      Add(Level::kError, "libraries",
          fmt::format("{} of {} differ from {}'s: expected the same files on every host",
                      fmt::join(differ, ", "), host.host, hosts_.front().host));
    }
  }

  void Results() {
    if (!request_.shared) return;
    std::vector<std::string> blind;
    for (const HostFacts& host : hosts_) {
      if (!host.sees_results) blind.push_back(host.host);
    }
    if (blind.empty()) {
      Add(Level::kGood, "results", fmt::format("every host sees {}", request_.results.string()));
      return;
    }
    Add(Level::kError, "results",
        fmt::format("{} does not see {} or cannot write there: expected --results FOLDER with one "
                    "that all hosts share, or --ship",
                    fmt::join(blind, ", "), request_.results.string()));
  }

  void Interfaces() {
    std::set<std::string> common = SetOf(hosts_.front().interfaces);
    for (const HostFacts& host : hosts_) {
      const std::set<std::string> own = SetOf(host.interfaces);
      std::erase_if(common, [&](const std::string& name) { return !own.contains(name); });
    }
    const std::string& asked = request_.method.interface;
    if (!asked.empty()) {
      for (const HostFacts& host : hosts_) {
        const std::set<std::string> own = SetOf(host.interfaces);
        if (own.contains(asked)) continue;
        Add(Level::kError, "interfaces",
            fmt::format("{} has no {} that is up, but {}: expected --interface {}", host.host,
                        asked, fmt::join(own, ", "),
                        common.empty() ? "with a name that all hosts have"
                                       : fmt::format("{}", fmt::join(common, " or "))));
      }
    }
    if (hosts_.size() == 1 || !asked.empty()) return;
    if (common.size() > 1) {
      Add(Level::kWarning, "interfaces",
          fmt::format("all hosts have {}: libraries choose by themselves, maybe several at once; "
                      "expected --interface with one of them",
                      fmt::join(common, ", ")));
    } else if (common.empty()) {
      Add(Level::kWarning, "interfaces",
          "no interface has the same name on all hosts: --interface can name none");
    } else {
      Add(Level::kGood, "interfaces", *common.begin());
    }
  }

  void Limits() {
    for (const HostFacts& host : hosts_) {
      const std::string& name = host.host;
      if (host.rdma && host.memlock_bytes) {
        Add(Level::kWarning, "memlock",
            fmt::format("{} lets a process lock {} KiB, and RDMA locks its messages: expected "
                        "`ulimit -l unlimited` (/etc/security/limits.conf; of Slurm, "
                        "LimitMEMLOCK=infinity for slurmd)",
                        name, static_cast<double>(*host.memlock_bytes) / 1024));
      }
      const auto ranks = std::ranges::count(preflight_.ranks, name, &HostFacts::host);
      if (host.shm_free_bytes < kLittleShm * static_cast<double>(ranks)) {
        Add(Level::kWarning, "/dev/shm",
            fmt::format("{} has {:.0f} MiB free for {} rank(s): expected 64 MiB each (of "
                        "containers, --shm-size)",
                        name, host.shm_free_bytes / (1 << 20), ranks));
      }
    }
  }

  void Clocks() {
    for (const HostFacts& host : hosts_) {
      const double off = host.clock_ahead_seconds.value_or(0);
      if (std::abs(off) < kSkewSeconds + host.clock_uncertainty_seconds.value_or(0)) continue;
      Add(Level::kWarning, "clocks",
          fmt::format("{} is {:.3f} s {} {}: expected NTP on every host (chronyc tracking)",
                      host.host, std::abs(off), off > 0 ? "ahead of" : "behind",
                      hosts_.front().host));
    }
  }

  const Preflight& preflight_;
  const PreflightRequest& request_;
  std::vector<HostFacts> hosts_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> JudgePreflight(const Preflight& preflight, const PreflightRequest& request) {
  return HostsJudge(preflight, request).Run();
}

std::string TableOfHosts(const Preflight& preflight) {
  const std::vector<HostFacts> hosts = Hosts(preflight.ranks);
  if (hosts.empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"host", "worker", "cores", "NUMA", "cards", "interfaces", "clock"}};
  for (const HostFacts& host : hosts) {
    rows.push_back({host.host, host.worker, host.cores, InWords(host.numa), InWords(host.cards),
                    InWords(host.interfaces),
                    host.clock_ahead_seconds
                        ? fmt::format("{:+.6f} s, ± {:.6f}", *host.clock_ahead_seconds,
                                      host.clock_uncertainty_seconds.value_or(0))
                        : "not compared"});
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      line += fmt::format("{:{}}  ", row[column], width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

namespace {

Preflight Ask(PreflightRequest& request, const RunOptions& options,
              const std::atomic<bool>& interrupted) {
  std::optional<Shipping> shipping;
  if (options.ship) {
    shipping.emplace(options.launch, Collect(options.worker, {}, {}), interrupted);
    request.worker = shipping->worker();
    request.environment = shipping->environment();
    request.shared = false;
  }
  return RunPreflight(request, interrupted);
}

}  // namespace

AskedNodes AskNodes(const RunOptions& options, const std::filesystem::path& results,
                    const std::atomic<bool>& interrupted) {
  AskedNodes asked;
  if (::access(options.worker.c_str(), X_OK) != 0) return asked;
  PreflightRequest request;
  request.method = options.launch;
  request.worker = options.worker;
  request.results = results;
  try {
    request.timeout_seconds = std::min(request.timeout_seconds, PhaseLimits::OfEnvironment().start);
    request.ranks = static_cast<int>(NodesOf(options.launch).size());
    const Preflight preflight = Ask(request, options, interrupted);
    if (interrupted) return asked;
    for (const Finding& finding : JudgePreflight(preflight, request)) {
      if (finding.level == Finding::Level::kError)
        asked.problems.push_back(finding.what + ": " + finding.message);
    }
    for (const HostFacts& rank : preflight.ranks) {
      if (rank.node) asked.nodes.push_back(*rank.node);
    }
    if (!preflight.failures.empty()) asked.nodes.clear();
  } catch (const Error&) {
    asked.nodes.clear();
  }
  return asked;
}

std::vector<Node> StoredNodes(const std::vector<TrialRow>& rows) {
  for (const TrialRow& row : rows | std::views::reverse) {
    if (row.system.Value().is_object() && row.system.contains("nodes"))
      return NodesIn(row.system["nodes"]);
  }
  return {};
}

}  // namespace sparfuse::harness

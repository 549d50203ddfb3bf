#include "harness/run/live/hosts/preflight.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <sstream>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/launch/placement.hpp"
#include "harness/run/live/launch/trial_log.hpp"
#include "harness/run/live/ship/node_channel.hpp"

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
    std::random_device random;
    const std::string nonce = fmt::format("{:08x}{:08x}", random(), random());
    WriteFileDurably(folder_.path() / kPreflightSeen, nonce);
    const std::vector<fs::path> argument = {folder_.path()};
    LaunchRequest launch;
    launch.timeout_seconds = request_.timeout_seconds;
    launch.log = folder_.path() / "log.txt";
    const LaunchedWork work{config, request_.worker, argument, launch.timeout_seconds, nonce};
    launch.environment = LaunchEnvironment(work, method);
    for (const auto& variable : request_.environment) launch.environment.push_back(variable);
    launch.environment.emplace_back(kPreflightVariable, "1");
    launch.argv = LaunchCommand(work, method, launch.environment);
    launch.ender = LaunchEnder(method, nonce);
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

}  // namespace sparfuse::harness

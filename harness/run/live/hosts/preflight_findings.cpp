#include "harness/run/live/hosts/preflight_findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/machine/binding.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Level = Finding::Level;

constexpr double kLittleShm = 64 << 20;  // bytes a rank: Open MPI's segments
constexpr double kSkewSeconds = 1;       // file times and logs of hosts are then told apart wrongly

// Of ranks on one host the first one's facts stand for it.
std::vector<json> Hosts(const std::vector<json>& ranks) {
  std::vector<json> hosts;
  for (const json& rank : ranks) {
    const auto known =
        std::ranges::find_if(hosts, [&](const json& host) { return host["host"] == rank["host"]; });
    if (known == hosts.end()) hosts.push_back(rank);
  }
  return hosts;
}

std::string Words(const json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value;
  if (value.is_array() && value.empty()) return "none";
  if (!value.is_array()) return value.dump();
  std::vector<std::string> words;
  for (const json& each : value) words.push_back(Words(each));
  return fmt::format("{}", fmt::join(words, ", "));
}

class HostsJudge {
 public:
  HostsJudge(const Preflight& preflight, const PreflightRequest& request)
      : preflight_(preflight), request_(request), hosts_(Hosts(preflight.ranks)) {}

  std::vector<Finding> Run() {
    Reached();
    if (hosts_.empty()) return std::move(findings_);
    Alike(
        "worker", "worker", Level::kError,
        fmt::format("the same file at {} on every host: copy it there, as in `scp {} HOST:{}`",
                    request_.worker.string(), request_.worker.string(), request_.worker.string()));
    Alike("mpi", "MPI", Level::kError, "the same Open MPI, first in every host's LD_LIBRARY_PATH");
    Alike("cuda", "CUDA", Level::kError, "the same CUDA runtime on every host");
    Alike("nccl", "NCCL", Level::kError, "the same NCCL on every host");
    Libraries();
    Alike("driver", "driver", Level::kWarning, "the same driver on every host");
    Alike("cards", "cards", Level::kWarning,
          "the same cards: unlike nodes are a system of their own");
    Alike("cpu", "processors", Level::kWarning,
          "the same processor: unlike nodes are a system of their own");
    Results();
    Interfaces();
    Limits();
    Clocks();
    if (const std::string hidden = WhoIsHidden(preflight_.ranks); !hidden.empty())
      Add(Level::kWarning, "cards", hidden);
    return std::move(findings_);
  }

 private:
  void Add(Level level, const std::string& what, const std::string& message) {
    findings_.push_back({level, what, message});
  }

  void Reached() {
    std::vector<std::string> names;
    for (const json& host : hosts_) names.push_back(host["host"]);
    for (const HostFailure& failure : preflight_.failures) {
      Add(Level::kError, "reached",
          failure.host.empty() ? failure.why : failure.host + ": " + failure.why);
    }
    if (!preflight_.failures.empty()) return;
    Add(Level::kGood, "reached",
        fmt::format("{} rank(s) on {} host(s), which find one another: {}", preflight_.ranks.size(),
                    names.size(), fmt::join(names, ", ")));
  }

  void Alike(const char* key, const std::string& what, Level level, const std::string& expected) {
    const json& first = hosts_.front().at(key);
    std::vector<std::string> others;
    for (const json& host : hosts_) {
      if (host.at(key) != first)
        others.push_back(
            fmt::format("{} has {}", host["host"].get<std::string>(), Words(host.at(key))));
    }
    if (!others.empty()) {
      Add(level, what,
          fmt::format("{}, and {} {}: expected {}", fmt::join(others, ", "),
                      hosts_.front()["host"].get<std::string>(), Words(first), expected));
    } else if (!first.is_null() && !(first.is_array() && first.empty())) {
      Add(Level::kGood, what, Words(first));
    }
  }

  // Those that every host has loaded, and that are of other files.
  void Libraries() {
    const json& first = hosts_.front().at("libraries");
    for (const json& host : hosts_) {
      std::vector<std::string> differ;
      for (const auto& [name, id] : first.items()) {
        if (host.at("libraries").value(name, "") != id) differ.push_back(name);
      }
      if (differ.empty()) continue;
      Add(Level::kError, "libraries",
          fmt::format("{} of {} are others than {}'s: expected the same files on every host",
                      fmt::join(differ, ", "), host["host"].get<std::string>(),
                      hosts_.front()["host"].get<std::string>()));
    }
  }

  void Results() {
    if (!request_.shared) return;
    std::vector<std::string> blind;
    for (const json& host : hosts_) {
      if (host.at("sees_results") != true) blind.push_back(host["host"]);
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
    std::set<std::string> common = hosts_.front().at("interfaces");
    for (const json& host : hosts_) {
      const std::set<std::string> own = host.at("interfaces");
      std::erase_if(common, [&](const std::string& name) { return !own.contains(name); });
    }
    const std::string& asked = request_.method.interface;
    if (!asked.empty()) {
      for (const json& host : hosts_) {
        const std::set<std::string> own = host.at("interfaces");
        if (own.contains(asked)) continue;
        Add(Level::kError, "interfaces",
            fmt::format("{} has no {} that is up, but {}: expected --interface {}",
                        host["host"].get<std::string>(), asked, fmt::join(own, ", "),
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
      Add(Level::kWarning, "interfaces", "no name is on all hosts: --interface can name none");
    } else {
      Add(Level::kGood, "interfaces", *common.begin());
    }
  }

  void Limits() {
    for (const json& host : hosts_) {
      const std::string name = host["host"];
      const json& locked = host.at("memlock_bytes");
      if (host.at("rdma") == true && !locked.is_null()) {
        Add(Level::kWarning, "memlock",
            fmt::format("{} lets a process lock {} KiB, and RDMA locks what it sends: expected "
                        "`ulimit -l unlimited` (/etc/security/limits.conf; of Slurm, "
                        "LimitMEMLOCK=infinity for slurmd)",
                        name, locked.get<double>() / 1024));
      }
      const auto ranks = std::ranges::count_if(
          preflight_.ranks, [&](const json& rank) { return rank["host"] == name; });
      if (host.at("shm_free_bytes").get<double>() < kLittleShm * static_cast<double>(ranks)) {
        Add(Level::kWarning, "/dev/shm",
            fmt::format("{} has {:.0f} MiB free for {} rank(s): expected 64 MiB each (of "
                        "containers, --shm-size)",
                        name, host["shm_free_bytes"].get<double>() / (1 << 20), ranks));
      }
    }
  }

  void Clocks() {
    for (const json& host : hosts_) {
      const double off = host.value("clock_ahead_seconds", 0.0);
      if (std::abs(off) < kSkewSeconds + host.value("clock_uncertainty_seconds", 0.0)) continue;
      Add(Level::kWarning, "clocks",
          fmt::format("{} is {:.3f} s {} {}: expected NTP on every host (chronyc tracking)",
                      host["host"].get<std::string>(), std::abs(off),
                      off > 0 ? "ahead of" : "behind", hosts_.front()["host"].get<std::string>()));
    }
  }

  const Preflight& preflight_;
  const PreflightRequest& request_;
  std::vector<json> hosts_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> JudgePreflight(const Preflight& preflight, const PreflightRequest& request) {
  return HostsJudge(preflight, request).Run();
}

std::string TableOfHosts(const Preflight& preflight) {
  const std::vector<json> hosts = Hosts(preflight.ranks);
  if (hosts.empty()) return "";
  std::vector<std::vector<std::string>> rows = {
      {"host", "worker", "cores", "NUMA", "cards", "interfaces", "clock"}};
  for (const json& host : hosts) {
    rows.push_back(
        {host["host"], host.at("worker"), host.at("cores"), Words(host.at("numa")),
         Words(host.at("cards")), Words(host.at("interfaces")),
         host.contains("clock_ahead_seconds")
             ? fmt::format("{:+.6f} s, ± {:.6f}", host["clock_ahead_seconds"].get<double>(),
                           host["clock_uncertainty_seconds"].get<double>())
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

}  // namespace sparfuse::harness

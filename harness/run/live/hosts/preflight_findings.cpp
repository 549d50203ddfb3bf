// Judges the findings of a preflight's ranks.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "harness/machine/binding.hpp"
#include "harness/run/live/hosts/preflight.hpp"

namespace sparfuse::harness {
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

}  // namespace sparfuse::harness

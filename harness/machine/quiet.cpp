#include "harness/machine/quiet.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "core/base/clock.hpp"
#include "harness/machine/nvml_api.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

double Needed(const HostUse& use) {
  const double cores = use.cores;
  return use.quota ? std::min(*use.quota, cores) : cores;
}

// A number of `key`; none where it is null or absent.
std::optional<double> NumberOf(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}

double SumOver(const std::vector<json>& ranks, const char* key) {
  return std::accumulate(ranks.begin(), ranks.end(), 0.0, [&](double sum, const json& rank) {
    return sum + NumberOf(rank, key).value_or(0);
  });
}

// One of each process: ranks that are threads of one share its counters.
std::map<std::string, std::vector<json>> ProcessesByHost(const std::vector<json>& ranks) {
  std::map<std::string, std::vector<json>> hosts;
  std::set<std::pair<std::string, int>> seen;
  for (const json& rank : ranks) {
    const std::string host = rank["host"];
    if (seen.emplace(host, rank["process"].get<int>()).second) hosts[host].push_back(rank);
  }
  return hosts;
}

// Of the slowest rank, by sample: ranks run the loop at once.
std::vector<double> SlowestLoops(const std::vector<json>& ranks) {
  std::vector<double> slowest;
  for (const json& rank : ranks) {
    const auto own = rank["loop_seconds"].get<std::vector<double>>();
    slowest.resize(std::max(slowest.size(), own.size()));
    for (std::size_t i = 0; i < own.size(); ++i) slowest[i] = std::max(slowest[i], own[i]);
  }
  return slowest;
}

}  // namespace

bool StandsStill(const HostUse& use) {
  return use.cores == 0 || use.all_seconds < 0.5 * use.cores * use.seconds;
}

double OtherCpu(const HostUse& use) {
  const double busy = use.cores * use.seconds - use.idle_seconds - use.interrupt_seconds -
                      use.stolen_seconds - use.own_seconds;
  const double needed = Needed(use) * use.seconds;
  if (needed <= 0) return 0;
  const double spare = use.cores * use.seconds - needed;
  return std::clamp((busy - spare) / needed, 0.0, 1.0);
}

double ResolutionOf(const HostUse& use) {
  constexpr double kTick = 0.01;
  // A difference of two numbers that are both rounded down: variance tick^2 / 6. One such of each
  // core, one of the launcher.
  const double deviation = kTick * std::sqrt(use.intervals * (use.cores + 1) / 6.0);
  const double needed = Needed(use) * use.seconds;
  return needed > 0 ? std::min(1.0, 3 * deviation / needed) : 1;
}

json CardReadings(const GpuReport& report, const std::vector<std::string>& uuids,
                  const std::vector<int>& own) {
  // Clocks that somebody set, or that power limits as always, are the card's own state.
  constexpr std::uint64_t kUsual = 0x1 | 0x2 | 0x4 | 0x100;
  const auto plain = [](std::string uuid) {
    std::erase_if(uuid, [](char c) { return !std::isxdigit(static_cast<unsigned char>(c)); });
    std::transform(uuid.begin(), uuid.end(), uuid.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return uuid;
  };
  json others = json::array();
  std::set<std::string> held_down;
  for (const GpuCard& card : report.cards) {
    const auto users = std::count_if(uuids.begin(), uuids.end(), [&](const std::string& uuid) {
      // NVML writes "GPU-" before the digits.
      return !uuid.empty() && plain(card.uuid).ends_with(plain(uuid));
    });
    if (users == 0) continue;
    for (const auto& word : ThrottleWords(card.throttle_reasons.value_or(0) & ~kUsual))
      held_down.insert(word);
    std::vector<std::string> elsewhere;
    for (const GpuProcess& process : card.processes) {
      const int pid = static_cast<int>(process.pid);
      if (std::find(own.begin(), own.end(), pid) != own.end()) continue;
      const std::string words =
          fmt::format("{} ({})", process.name.empty() ? "?" : process.name, process.pid);
      if (std::filesystem::exists("/proc/" + std::to_string(pid))) {
        others.push_back(words);
      } else {
        elsewhere.push_back(words);
      }
    }
    for (auto i = static_cast<std::size_t>(users); i < elsewhere.size(); ++i)
      others.push_back(elsewhere[i]);
  }
  return {{"other_processes", others}, {"held_down_by", held_down}};
}

json QuietReadings(const std::vector<json>& ranks) {
  json readings = {{"other_cpu", nullptr}, {"stolen", nullptr}, {"resolution", nullptr}};
  double own = 0;
  double switches = 0;
  for (const auto& [host, processes] : ProcessesByHost(ranks)) {
    const json& first = processes.front();
    HostUse use;
    use.seconds = first["seconds"];
    use.intervals = first["intervals"];
    use.cores = first["cores"];
    use.all_seconds = NumberOf(first, "all_seconds").value_or(0);
    use.quota = NumberOf(first, "quota");
    use.own_seconds = SumOver(processes, "own_seconds");
    own += use.own_seconds;
    switches += SumOver(processes, "involuntary_switches");
    use.own_seconds += NumberOf(first, "ancestors_seconds").value_or(0);
    if (StandsStill(use)) continue;
    use.idle_seconds = first["idle_seconds"];
    use.interrupt_seconds = first["interrupt_seconds"];
    use.stolen_seconds = first["stolen_seconds"];
    const auto raise = [&](const char* key, double value) {
      readings[key] = std::max(NumberOf(readings, key).value_or(0), value);
    };
    raise("other_cpu", OtherCpu(use));
    raise("stolen", std::clamp(use.stolen_seconds / (use.cores * use.seconds), 0.0, 1.0));
    raise("resolution", ResolutionOf(use));
  }
  const json& first = ranks.front();
  for (const char* key : {"seconds", "cores", "quota", "clock_mhz", "load"}) {
    readings[key] = first.value(key, json());
  }
  const auto waited = NumberOf(first, "pressure_seconds");
  const double seconds = first["seconds"];
  readings["pressure"] = waited && seconds > 0 ? json(*waited / seconds) : json();
  readings["own_cpu_seconds"] = own;
  readings["involuntary_switches"] = switches;
  readings["loop_seconds"] = SlowestLoops(ranks);
  readings["cards"] = first.value("cards", json());
  return readings;
}

std::optional<double> MeanLoopSeconds(const json& readings) {
  if (!readings.is_object() || !readings.contains("loop_seconds")) return std::nullopt;
  const auto seconds = readings["loop_seconds"].get<std::vector<double>>();
  if (seconds.empty()) return std::nullopt;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

std::optional<double> Undisturbed(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 4];
}

json JudgeQuiet(json readings, const QuietLimits& limits, std::optional<double> usual) {
  if (!readings.is_object()) return nullptr;
  readings["limits"] = {
      {"other_cpu", limits.other_cpu}, {"stolen", limits.stolen}, {"slowdown", limits.slowdown}};
  json causes = json::object();
  const double resolution = NumberOf(readings, "resolution").value_or(0);
  for (const auto& [key, limit] :
       {std::pair("other_cpu", limits.other_cpu), std::pair("stolen", limits.stolen)}) {
    const auto value = NumberOf(readings, key);
    if (value && *value - resolution > limit) causes[key] = *value;
  }
  readings["slowdown"] = nullptr;
  if (const auto mean = MeanLoopSeconds(readings)) {
    // A burst shows beside the trial's other readings, a neighbour that stays beside other trials.
    const double own = *Undisturbed(readings["loop_seconds"].get<std::vector<double>>());
    const double undisturbed = std::min(own, usual.value_or(own));
    if (undisturbed > 0) {
      const double slowdown = *mean / undisturbed;
      readings["slowdown"] = slowdown;
      if (slowdown > limits.slowdown) causes["slowdown"] = slowdown;
    }
  }
  std::vector<std::string> words;
  for (const auto& [cause, value] : causes.items()) words.push_back(CauseWords(cause, value));
  if (const json& cards = readings["cards"]; cards.is_object()) {
    for (const char* key : {"other_processes", "held_down_by"}) {
      if (cards[key].empty()) continue;
      causes[key] = cards[key].size();
      words.push_back(fmt::format("{}: {}", CauseWords(key, 0),
                                  fmt::join(cards[key].get<std::vector<std::string>>(), ", ")));
    }
  }
  readings["disturbed"] = !causes.empty();
  readings["causes"] = std::move(causes);
  readings["why"] = fmt::format("{}", fmt::join(words, "; "));
  return readings;
}

std::string CauseWords(const std::string& cause, double value) {
  if (cause == "other_cpu")
    return fmt::format("other work took {:.0f} % of the cores", 100 * value);
  if (cause == "stolen")
    return fmt::format("the hypervisor took {:.0f} % of the cores", 100 * value);
  if (cause == "slowdown") return fmt::format("the cores computed {:.2f}x slower", value);
  if (cause == "other_processes") return "other processes were on the card";
  if (cause == "held_down_by") return "the card's clock was held down";
  return cause;
}

std::string WhatDisturbsNow(const QuietLimits& limits, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  const CpuUse before = ReadCpuUse();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const CpuUse after = ReadCpuUse();
  const auto added = Between(before.times, after.times);
  if (!added) return "";
  HostUse use;
  static_cast<CoreTimes&>(use) = *added;
  use.seconds = SecondsSince(begin);
  use.quota = CpuQuota();
  if (StandsStill(use)) return "";
  const double other = OtherCpu(use);
  const double stolen = use.stolen_seconds / (use.cores * use.seconds);
  std::vector<std::string> words;
  if (other - ResolutionOf(use) > limits.other_cpu)
    words.push_back(fmt::format("other work takes {:.0f} % of the cores", 100 * other));
  if (stolen - ResolutionOf(use) > limits.stolen)
    words.push_back(fmt::format("the hypervisor takes {:.0f} % of the cores", 100 * stolen));
  if (words.empty()) return "";
  const auto load = LoadAverage();
  return fmt::format("{} at the moment{}: live trials would be disturbed",
                     fmt::join(words, " and "),
                     load ? fmt::format(" (load {:.2f} over the last minute)", *load) : "");
}

}  // namespace sparfuse::harness

#include "harness/machine/quiet.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "core/base/clock.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kRuns = 5;
constexpr int kRounds = 60'000;

std::uint64_t Mix(std::uint64_t x) {  // xorshift
  x ^= x << 13;
  x ^= x >> 7;
  return x ^ x << 17;
}

[[gnu::noinline]] std::uint64_t Loop(std::uint64_t seed) {
  std::uint64_t a = seed + 1, b = seed + 2, c = seed + 3, d = seed + 4;
  std::uint64_t e = seed + 5, f = seed + 6, g = seed + 7, h = seed + 8;
  for (int round = 0; round < kRounds; ++round) {
    a = Mix(a), b = Mix(b), c = Mix(c), d = Mix(d);
    e = Mix(e), f = Mix(f), g = Mix(g), h = Mix(h);
  }
  return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

double TickSeconds() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

std::string Contents(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

double AncestorsCpuSeconds() {
  double seconds = 0;
  for (int process = getppid(); process > 1;) {
    const auto times = ParseProcessStat(Contents("/proc/" + std::to_string(process) + "/stat"));
    if (!times) break;
    seconds += times->cpu_seconds;
    process = times->parent;
  }
  return seconds;
}

double Needed(const HostUse& use) {
  const double cores = use.cores;
  return use.quota ? std::min(*use.quota, cores) : cores;
}

using Readings = std::vector<RankReadings>;

double SumOver(const Readings& ranks, double RankReadings::*member) {
  return std::accumulate(ranks.begin(), ranks.end(), 0.0,
                         [&](double sum, const RankReadings& rank) { return sum + rank.*member; });
}

// One rank of each process, because ranks that are threads of one process share its counters.
std::map<std::string, Readings> ProcessesByHost(const Readings& ranks) {
  std::map<std::string, Readings> hosts;
  std::set<std::pair<std::string, int>> seen;
  for (const RankReadings& rank : ranks) {
    if (seen.emplace(rank.host, rank.process).second) hosts[rank.host].push_back(rank);
  }
  return hosts;
}

// The slowest rank's loop time, by sample. All ranks run the loop at once.
std::vector<double> SlowestLoops(const Readings& ranks) {
  std::vector<double> slowest;
  for (const RankReadings& rank : ranks) {
    const std::vector<double>& own = rank.loop_seconds;
    slowest.resize(std::max(slowest.size(), own.size()));
    for (std::size_t i = 0; i < own.size(); ++i) slowest[i] = std::max(slowest[i], own[i]);
  }
  return slowest;
}

void Raise(std::optional<double>& reading, double value) {
  reading = std::max(reading.value_or(0), value);
}

void JudgeLink(const QuietLink& link, double limit, std::map<std::string, double>& causes) {
  const auto& [label, before, after] = link;
  double off = 0;  // the larger of both
  for (const auto& gbps : {before, after}) {
    if (gbps && label > 0 && std::abs(*gbps / label - 1) > std::abs(off)) off = *gbps / label - 1;
  }
  if (std::abs(off) > limit) causes["link"] = off;
  if (!before || !after || *before <= 0) return;
  if (const double change = *after / *before - 1; std::abs(change) > limit)
    causes["link_change"] = change;
}

}  // namespace

double ReferenceLoopSeconds() {
  std::array<double, kRuns> seconds{};
  volatile std::uint64_t kept = 0;  // forces the computation of the loop
  for (double& each : seconds) {
    const double begin = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
    kept = Loop(kept);
    each = CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - begin;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

std::optional<CoreTimes> Between(const std::optional<CoreTimes>& before,
                                 const std::optional<CoreTimes>& after) {
  if (!before || !after) return std::nullopt;
  const CoreTimes added{after->cores, after->idle_seconds - before->idle_seconds,
                        after->interrupt_seconds - before->interrupt_seconds,
                        after->stolen_seconds - before->stolen_seconds,
                        after->all_seconds - before->all_seconds};
  const double least = std::min(
      {added.idle_seconds, added.interrupt_seconds, added.stolen_seconds, added.all_seconds});
  return least < 0 ? std::nullopt : std::optional(added);
}

std::optional<CoreTimes> ParseProcStat(const std::string& text, const std::vector<int>& cores) {
  enum Field { kUser, kNice, kSystem, kIdle, kWaiting, kInterrupts, kSoft, kStolen, kFields };
  CoreTimes sum;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu") || name.size() == 3) continue;  // "cpu" sums all cores
    const int core = std::atoi(name.c_str() + 3);
    if (std::find(cores.begin(), cores.end(), core) == cores.end()) continue;
    double ticks[kFields] = {};  // old kernels have fewer fields
    for (double& field : ticks) words >> field;
    ++sum.cores;
    sum.idle_seconds += ticks[kIdle] + ticks[kWaiting];
    sum.interrupt_seconds += ticks[kInterrupts] + ticks[kSoft];
    sum.stolen_seconds += ticks[kStolen];
    for (const double field : ticks) sum.all_seconds += field;
  }
  if (sum.cores == 0) return std::nullopt;
  for (double* seconds :
       {&sum.idle_seconds, &sum.interrupt_seconds, &sum.stolen_seconds, &sum.all_seconds}) {
    *seconds *= TickSeconds();
  }
  return sum;
}

std::optional<double> ParsePressure(const std::string& text) {
  const std::string total = "total=";
  if (!text.starts_with("some ")) return std::nullopt;
  const auto at = text.find(total);
  if (at == std::string::npos || at > text.find('\n')) return std::nullopt;
  return 1e-6 * std::atof(text.c_str() + at + total.size());
}

std::optional<double> ParseQuota(const std::string& text) {
  std::istringstream words(text);
  double quota = 0;
  double period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<ProcessTimes> ParseProcessStat(const std::string& text) {
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
  constexpr std::size_t kParent = 1, kUser = 11, kSystem = 12;  // field 0 is the process's state
  if (fields.size() <= kSystem) return std::nullopt;
  const double ticks = std::atof(fields[kUser].c_str()) + std::atof(fields[kSystem].c_str());
  return ProcessTimes{std::atoi(fields[kParent].c_str()), ticks * TickSeconds()};
}

CpuUse ReadCpuUse() {
  CpuUse use;
  use.times = ParseProcStat(Contents("/proc/stat"), UsableCores());
  use.own_cpu_seconds = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  use.ancestors_cpu_seconds = AncestorsCpuSeconds();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  use.involuntary_switches = usage.ru_nivcsw;
  use.pressure_seconds = ParsePressure(Contents("/proc/pressure/cpu"));
  return use;
}

std::optional<double> CpuQuota() {
  std::istringstream groups(Contents("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    if (const auto quota = ParseQuota(Contents("/sys/fs/cgroup" + line.substr(3) + "/cpu.max")))
      return quota;
  }
  const std::string first = "/sys/fs/cgroup/cpu/cpu.cfs_";  // of cgroups version 1
  return ParseQuota(Contents(first + "quota_us") + " " + Contents(first + "period_us"));
}

std::optional<double> ClockMhz() {
  std::istringstream lines(Contents("/proc/cpuinfo"));
  double sum = 0;
  int cores = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    sum += std::atof(line.c_str() + line.find(':') + 1);
    ++cores;
  }
  return cores > 0 ? std::optional(sum / cores) : std::nullopt;
}

std::optional<double> LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? std::optional(load) : std::nullopt;
}

template <>
RecordKeys KeysOf<RankReadings>() {
  using R = RankReadings;
  static constexpr auto kKeys = KeyTable<R>(
      Key<&R::host>({.name = "host"}), Key<&R::process>({.name = "process"}),
      Key<&R::seconds, R>({.name = "seconds"}), Key<&R::intervals, R>({.name = "intervals"}),
      Key<&R::quota, R>({.name = "quota"}), Key<&R::cores, R>({.name = "cores"}),
      Key<&R::idle_seconds, R>({.name = "idle_seconds"}),
      Key<&R::interrupt_seconds, R>({.name = "interrupt_seconds"}),
      Key<&R::stolen_seconds, R>({.name = "stolen_seconds"}),
      Key<&R::all_seconds, R>({.name = "all_seconds"}),
      Key<&R::own_seconds, R>({.name = "own_seconds"}),
      Key<&R::ancestors_seconds>({.name = "ancestors_seconds"}),
      Key<&R::involuntary_switches>({.name = "involuntary_switches"}),
      Key<&R::pressure_seconds>({.name = "pressure_seconds"}), Key<&R::load>({.name = "load"}),
      Key<&R::clock_mhz>({.name = "clock_mhz"}), Key<&R::loop_seconds>({.name = "loop_seconds"}),
      Key<&R::card>({.name = "card"}), Key<&R::cards>({.name = "cards"}));
  return kKeys;
}

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
  // A difference of two rounded-down numbers has a variance of tick^2 / 6. There is one difference
  // for each core, and one for the launcher.
  const double deviation = kTick * std::sqrt(use.intervals * (use.cores + 1) / 6.0);
  const double needed = Needed(use) * use.seconds;
  return needed > 0 ? std::min(1.0, 3 * deviation / needed) : 1;
}

QuietCards CardReadings(const GpuReport& report, const std::vector<std::string>& uuids,
                        const std::vector<int>& own) {
  // Clocks that somebody set, or that power limits always cap, are the card's normal state.
  constexpr std::uint64_t kUsual = 0x1 | 0x2 | 0x4 | 0x100;
  std::vector<std::string> others;
  std::set<std::string> held_down;
  for (const GpuCard& card : report.cards) {
    const auto users =
        std::ranges::count_if(uuids, [&](const std::string& uuid) { return IsCard(card, uuid); });
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
  return {others, {held_down.begin(), held_down.end()}};
}

Quiet QuietReadings(const Readings& ranks) {
  Quiet readings;
  for (const auto& [host, processes] : ProcessesByHost(ranks)) {
    HostUse use = processes.front();
    use.own_seconds = SumOver(processes, &RankReadings::own_seconds);
    readings.own_cpu_seconds += use.own_seconds;
    readings.involuntary_switches += SumOver(processes, &RankReadings::involuntary_switches);
    use.own_seconds += processes.front().ancestors_seconds;
    if (StandsStill(use)) continue;
    Raise(readings.other_cpu, OtherCpu(use));
    Raise(readings.stolen, std::clamp(use.stolen_seconds / (use.cores * use.seconds), 0.0, 1.0));
    Raise(readings.resolution, ResolutionOf(use));
  }
  const RankReadings& first = ranks.front();
  readings.seconds = first.seconds;
  readings.cores = first.cores;
  readings.quota = first.quota;
  readings.clock_mhz = first.clock_mhz;
  readings.load = first.load;
  if (first.pressure_seconds && first.seconds > 0)
    readings.pressure = *first.pressure_seconds / first.seconds;
  readings.loop_seconds = SlowestLoops(ranks);
  readings.cards = first.cards;
  return readings;
}

std::optional<double> MeanLoopSeconds(const Quiet& readings) {
  const std::vector<double>& seconds = readings.loop_seconds;
  if (seconds.empty()) return std::nullopt;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

std::optional<double> Undisturbed(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 4];
}

Quiet JudgeQuiet(Quiet readings, const QuietLimits& limits, std::optional<double> usual) {
  readings.limits = limits;
  std::map<std::string, double>& causes = readings.causes;
  causes.clear();
  const double resolution = readings.resolution.value_or(0);
  if (readings.other_cpu && *readings.other_cpu - resolution > limits.other_cpu)
    causes["other_cpu"] = *readings.other_cpu;
  if (readings.stolen && *readings.stolen - resolution > limits.stolen)
    causes["stolen"] = *readings.stolen;
  readings.slowdown.reset();
  if (const auto mean = MeanLoopSeconds(readings)) {
    // A burst shows against the trial's other readings, and a lasting neighbour against other
    // trials.
    const double own = *Undisturbed(readings.loop_seconds);
    const double undisturbed = std::min(own, usual.value_or(own));
    if (undisturbed > 0) {
      readings.slowdown = *mean / undisturbed;
      if (*readings.slowdown > limits.slowdown) causes["slowdown"] = *readings.slowdown;
    }
  }
  if (readings.link) JudgeLink(*readings.link, limits.link, causes);
  std::vector<std::string> words;
  for (const auto& [cause, value] : causes) words.push_back(CauseWords(cause, value));
  const auto on_cards = [&](const std::string& cause, const std::vector<std::string>& found) {
    if (found.empty()) return;
    causes[cause] = static_cast<double>(found.size());
    words.push_back(fmt::format("{}: {}", CauseWords(cause, 0), fmt::join(found, ", ")));
  };
  if (readings.cards) {
    on_cards("other_processes", readings.cards->other_processes);
    on_cards("held_down_by", readings.cards->held_down_by);
  }
  readings.disturbed = !causes.empty();
  readings.why = fmt::format("{}", fmt::join(words, "; "));
  return readings;
}

std::string CauseWords(const std::string& cause, double value) {
  if (cause == "other_cpu")
    return fmt::format("other work took {:.0f} % of the cores", 100 * value);
  if (cause == "stolen")
    return fmt::format("the hypervisor took {:.0f} % of the cores", 100 * value);
  if (cause == "slowdown") return fmt::format("the cores computed {:.2f}x slower", value);
  if (cause == "link" || cause == "link_change") {
    return fmt::format("the link {} {:.0f} % {} {}", cause == "link" ? "was" : "became",
                       100 * std::abs(value), value < 0 ? "slower" : "faster",
                       cause == "link" ? "than its label" : "during the trial");
  }
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

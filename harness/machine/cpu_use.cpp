#include "harness/machine/cpu_use.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

namespace sparfuse::harness {
namespace {

double TickSeconds() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

std::string Contents(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<int> UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
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

}  // namespace

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
    double ticks[kFields] = {};  // an old kernel has fewer fields
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
  constexpr std::size_t kParent = 1, kUser = 11, kSystem = 12;  // the process's state is 0
  if (fields.size() <= kSystem) return std::nullopt;
  const double ticks = std::atof(fields[kUser].c_str()) + std::atof(fields[kSystem].c_str());
  return ProcessTimes{std::atoi(fields[kParent].c_str()), ticks * TickSeconds()};
}

CpuUse ReadCpuUse() {
  CpuUse use;
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  use.times = ParseProcStat(Contents("/proc/stat"), UsableCores());
  use.own_cpu_seconds = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec);
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
  const std::string first = "/sys/fs/cgroup/cpu/cpu.cfs_";  // cgroups of version 1
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

}  // namespace sparfuse::harness

// Reads who used the cores that this process may use: the kernel's counters, by host.
//
// A disturbance is what these counters cannot attribute to the trial. Idle time is what the kernel
// measures most exactly (/proc/stat counts busy time by sampling, and a process that sleeps before
// every sample is never seen), so that busy time is taken as elapsed less idle.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sparfuse::harness {

// Of some cores, summed, since the machine started. Whole hundredths of a second a core.
struct CoreTimes {
  int cores = 0;
  double idle_seconds = 0;  // waiting for input and output included
  double interrupt_seconds = 0;
  double stolen_seconds = 0;  // which the hypervisor gave to others
  double all_seconds = 0;
};

// What was added between two readings; none where a counter fell, as those of waiting for input and
// output may at any time: nothing can be said of what others did meanwhile.
std::optional<CoreTimes> Between(const std::optional<CoreTimes>& before,
                                 const std::optional<CoreTimes>& after);

// What of /proc/stat concerns these cores; none where it names none of them.
std::optional<CoreTimes> ParseProcStat(const std::string& text, const std::vector<int>& cores);
// Seconds in which a task of the host waited for a core, of /proc/pressure/cpu.
std::optional<double> ParsePressure(const std::string& text);
// Cores' worth of time that a cgroup's cpu.max, "200000 100000", allows; none for "max".
std::optional<double> ParseQuota(const std::string& text);
// /proc/PID/stat. Its second field, the name, may hold spaces and brackets.
struct ProcessTimes {
  int parent = 0;
  double cpu_seconds = 0;
};
std::optional<ProcessTimes> ParseProcessStat(const std::string& text);

// At one moment. What a kernel or a container does not tell is empty.
struct CpuUse {
  std::optional<CoreTimes> times;    // of the cores of this thread's affinity
  double own_cpu_seconds = 0;        // of this process, its threads that ended included
  double ancestors_cpu_seconds = 0;  // launcher and controller: they belong to the trial
  long involuntary_switches = 0;     // of this process
  std::optional<double> pressure_seconds;
};
CpuUse ReadCpuUse();

// What the cgroup of this process allows; none where it does not limit.
std::optional<double> CpuQuota();
// Mean over the cores, now; none where the kernel does not tell.
std::optional<double> ClockMhz();
// Tasks that ran or waited, over the last minute.
std::optional<double> LoadAverage();

}  // namespace sparfuse::harness

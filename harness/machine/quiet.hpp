// Judges from a trial's readings of its machine whether something disturbed it.
//
// Assumption: the trial may use all cores of its affinity, up to its cgroup's quota. In a container
// with the host's /proc/stat, the work of others on cores that the trial cannot fill counts only if
// it leaves less than the quota.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"
#include "harness/records/machine.hpp"

namespace sparfuse::harness {

// Processor seconds of this thread for one run of the loop, a few tenths of a millisecond: the
// median of five. It is processor time, so that waiting for a core does not count; CpuUse shows
// waiting. It shows how fast the core computes: its clock, and a neighbour on the same physical
// core, which no counter of this system sees. The loop is integer arithmetic in registers. It has
// enough independent chains to keep all units of a core busy, so that it feels a neighbour. It
// touches no memory, so it does not disturb the caches of the steps around it, and does not see the
// effect of other cores on them.
double ReferenceLoopSeconds();

// The sum over some cores since the machine started, in whole hundredths of a second a core.
struct CoreTimes {
  int cores = 0;
  double idle_seconds = 0;  // waiting for input and output included
  double interrupt_seconds = 0;
  double stolen_seconds = 0;  // given to others by the hypervisor
  double all_seconds = 0;
};

// The increase between two readings; none if a counter fell. Counters of waiting for input and
// output may fall at any time, and then the work of others in the meantime is unknown.
std::optional<CoreTimes> Between(const std::optional<CoreTimes>& before,
                                 const std::optional<CoreTimes>& after);

// The part of /proc/stat on these cores; none if it names none of them.
std::optional<CoreTimes> ParseProcStat(const std::string& text, const std::vector<int>& cores);
// Seconds during which a task of the host waited for a core, from /proc/pressure/cpu.
std::optional<double> ParsePressure(const std::string& text);
// The cores' worth of time that a cgroup's cpu.max, "200000 100000", allows; none for "max".
std::optional<double> ParseQuota(const std::string& text);
// /proc/PID/stat. Its second field, the name, may hold spaces and brackets.
struct ProcessTimes {
  int parent = 0;
  double cpu_seconds = 0;
};
std::optional<ProcessTimes> ParseProcessStat(const std::string& text);

// Readings at one moment. A value that a kernel or a container does not tell is empty.
struct CpuUse {
  std::optional<CoreTimes> times;    // of the cores of this thread's affinity
  double own_cpu_seconds = 0;        // of this process, its threads that ended included
  double ancestors_cpu_seconds = 0;  // launcher and controller: they belong to the trial
  long involuntary_switches = 0;     // of this process
  std::optional<double> pressure_seconds;
};
CpuUse ReadCpuUse();

// The limit of this process's cgroup; none if there is no limit.
std::optional<double> CpuQuota();
// The mean over the cores, now; none if the kernel does not tell.
std::optional<double> ClockMhz();
// Tasks that ran or waited, over the last minute.
std::optional<double> LoadAverage();

// The readings of a trial's processes on one host over the measured time.
struct HostUse : CoreTimes {  // of the cores that the trial may use
  double seconds = 0;         // measured, in `intervals` pieces
  int intervals = 1;
  std::optional<double> quota;  // of its cgroup, in cores
  double own_seconds = 0;       // processor time of the trial's processes, launcher and controller
};
// Some containers have a /proc/stat that stands still; then nothing is known of other processes.
bool StandsStill(const HostUse& use);
// The share of the trial's cores that other processes took. Interrupts belong to nobody, because
// interrupts from the trial's own messages are among them.
double OtherCpu(const HostUse& use);
// The possible error of this and of the stolen share (three standard deviations). The kernel gives
// both in hundredths of a second a core, at each end of an interval.
double ResolutionOf(const HostUse& use);

// A rank's readings of its process and its host over the measured time.
struct RankReadings : HostUse {  // own_seconds: of its process alone
  std::string host;
  int process = 0;
  double ancestors_seconds = 0;  // launcher and controller
  double involuntary_switches = 0;
  std::optional<double> pressure_seconds;
  BeforeAndAfter load, clock_mhz;
  std::vector<double> loop_seconds;
  std::string card;                 // its uuid; "" without one
  std::optional<QuietCards> cards;  // of rank 0
};

// For the cards with these uuids: the reasons that limit their clocks, and other processes that
// compute on them. `own`: the processes of the trial. A process of another PID namespace cannot be
// distinguished from the trial's own, so these count only if they are more than `own`.
QuietCards CardReadings(const GpuReport& report, const std::vector<std::string>& uuids,
                        const std::vector<int>& own);

// The readings of all ranks as one, without the judgement.
Quiet QuietReadings(const std::vector<RankReadings>& ranks);

// The time of the reference loop: the mean of the readings; none without any.
std::optional<double> MeanLoopSeconds(const Quiet& readings);

// The undisturbed value if up to three quarters of `values` may be disturbed: their lower quartile;
// none if there are no values. The least value would be luck, because on a shared host the loop is
// sometimes a fifth faster.
std::optional<double> Undisturbed(std::vector<double> values);

// The readings with the judgement. `usual`: MeanLoopSeconds of trials like this one where nothing
// disturbed them, if there are any.
Quiet JudgeQuiet(Quiet readings, const QuietLimits& limits, std::optional<double> usual);

// "other work took 22 % of the cores" and the like, of a cause and its value.
std::string CauseWords(const std::string& cause, double value);

// "" if the machine is quiet, else the warning for a run that starts now. Takes `seconds`.
std::string WhatDisturbsNow(const QuietLimits& limits, double seconds = 0.3);

}  // namespace sparfuse::harness

// Judges from what a trial read of its machine whether something disturbed it.
//
// Assumed: the trial may use the cores of its affinity, all of them, as far as its cgroup's quota
// allows. In a container whose /proc/stat is the host's, what others do on cores that the trial
// cannot fill counts only where it leaves less than the quota.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/machine/cpu_use.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/records/quiet.hpp"

namespace sparfuse::harness {

// What the processes of a trial on one host read over the measured time.
struct HostUse : CoreTimes {  // of the cores that the trial may use
  double seconds = 0;         // measured, in `intervals` pieces
  int intervals = 1;
  std::optional<double> quota;  // of its cgroup, in cores
  double own_seconds = 0;       // processor time of the trial's processes, launcher and controller
};
// Some containers have a /proc/stat that does not move: nothing is known of others.
bool StandsStill(const HostUse& use);
// The share of the cores that the trial needs which other processes took from it. Interrupts count
// as nobody's: those of the trial's own messages are among them.
double OtherCpu(const HostUse& use);
// By how much it and the stolen share may be wrong (three standard deviations): the kernel tells
// both in hundredths of a second a core, at each end of an interval.
double ResolutionOf(const HostUse& use);

// What a rank read of its process and its host, over the measured time.
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

// Of the cards with these uuids: what holds their clocks down, and who else computes on them.
// `own`: the processes of the trial. A process of another PID namespace cannot be told from the
// trial's own; such ones count as far as they are more than these.
QuietCards CardReadings(const GpuReport& report, const std::vector<std::string>& uuids,
                        const std::vector<int>& own);

// The readings of all ranks as one, without the judgement.
Quiet QuietReadings(const std::vector<RankReadings>& ranks);

// What the reference loop took: the mean of the readings; none without any.
std::optional<double> MeanLoopSeconds(const Quiet& readings);

// What values are where nothing disturbs them, of which up to three quarters may be disturbed:
// their lower quartile; none without any. The least would be luck: on a shared host the loop is a
// fifth faster now and then.
std::optional<double> Undisturbed(std::vector<double> values);

// The readings with the judgement. `usual`: MeanLoopSeconds of trials like this one where nothing
// disturbed them, if there are any.
Quiet JudgeQuiet(Quiet readings, const QuietLimits& limits, std::optional<double> usual);

// "other work took 22 % of the cores" and the like, of a cause and its value.
std::string CauseWords(const std::string& cause, double value);

// "": the machine is quiet. Else what a run that starts now is warned with. Takes `seconds`.
std::string WhatDisturbsNow(const QuietLimits& limits, double seconds = 0.3);

}  // namespace sparfuse::harness

// Times single operations, for profiles.
#pragma once

#include <functional>

#include "core/base/clock.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Seconds of one call: median of `repeats` batches that each last long enough for the clock.
Estimate TimeOf(const std::function<void()>& body, int repeats);
// As above, for work that a call gives to the stream: from the begin of the first batch there to
// its end. So a kernel that is shorter than its launch counts as long as the launch.
Estimate TimeOnDevice(const Stream& stream, const std::function<void()>& body, int repeats);

// Collective; the same on all ranks, bit for bit. The ranks of a machine disturb one another at the
// same time, so errors of estimates are assumed to be common to all: the mean's error is their
// mean.
double MeanOverRanks(const Rank& rank, double own);
Estimate MeanOverRanks(const Rank& rank, const Estimate& own);

// a - b, at least 0; errors taken to be independent.
Estimate Excess(const Estimate& a, const Estimate& b);

// The time of an exchange between all ranks.
struct ExchangeTime {
  Estimate wall;           // seconds
  double cpu_seconds = 0;  // of this process; of its rank if ranks are threads
};

// Medians of `repeats` runs of `task`, which every rank begins at once; mean over ranks.
// Collective.
ExchangeTime TimeExchange(const Rank& rank, const ProgressLoop::Make& task, int repeats);

// Computation of the calling thread.
struct Pass {
  std::function<void()> run;
  double seconds = 0;  // until all ranks that began together are through
};

// The additional processor time of this rank's process if `task` runs in parallel to `passes` of
// `pass` on the calling thread: the task's own work, and the loss of the thread from which it takes
// the core. Median of `repeats`, mean over ranks; at least 0. Collective.
double CpuSecondsBeside(const Rank& rank, const Pass& pass, int passes,
                        const ProgressLoop::Make& task, int repeats);

}  // namespace sparfuse::harness

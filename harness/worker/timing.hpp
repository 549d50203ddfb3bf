// Times of single operations, for profiles.
#pragma once

#include <functional>

#include "harness/worker/rank.hpp"

namespace sparfuse {

// Median seconds of one call, from `repeats` batches that each last long enough for the clock.
double TimeOf(const std::function<void()>& body, int repeats);

// Collective; the same on all ranks, bit for bit.
double MeanOverRanks(const Rank& rank, double own);

// Of an exchange between all ranks.
struct ExchangeTime {
  double wall_seconds = 0;
  double cpu_seconds = 0;  // of this process: of its rank, but where ranks are threads
};

// Medians of `repeats` runs of `task`, which every rank begins at once; mean over ranks.
// Collective.
ExchangeTime TimeExchange(const Rank& rank, const ProgressLoop::Make& task, int repeats);

}  // namespace sparfuse

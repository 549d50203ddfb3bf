// Compares and collects over ranks: replicas' state, step records, spans.
#pragma once

#include <span>
#include <vector>

#include "core/transport/world/clocks.hpp"
#include "harness/store/step_log.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

// Parameters and optimizer state of rank 0 to every rank.
void BroadcastState(const Rank& rank, workloads::TrainingWorkload& workload);

// Whether every rank's parameters and optimizer state equal rank 0's bit for bit; the same answer
// on all ranks.
bool StateEqualsRankZero(const Rank& rank, workloads::TrainingWorkload& workload);

// Gives every rank the mean over ranks of running statistics, in rank order, for evaluations. It
// does not change later means. Collective.
void AverageStatistics(const Rank& rank, workloads::TrainingWorkload& workload);

// Every rank's steps, on every rank.
StepLog GatherSteps(const Rank& rank, const std::vector<LoggedStep>& own);

// Every rank's spans by step, with the begin of each rank's step on rank 0's clock. `own`: this
// rank's spans in by_rank[0] of each step, and its own clock. clocks: of every rank; used on rank
// 0, and only its result has these times.
std::vector<TracedStep> GatherSpans(const Rank& rank, const std::vector<TracedStep>& own,
                                    std::span<const ClockLine> clocks);

}  // namespace sparfuse::harness

// Compares and collects over ranks: replicas' state, step records, spans.
#pragma once

#include <vector>

#include "harness/store/step_log.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

// Parameters and optimizer state of rank 0 to every rank.
void BroadcastState(const Rank& rank, workloads::TrainingWorkload& workload);

// Whether every rank's parameters and optimizer state equal rank 0's bit for bit; the same answer
// on all ranks.
bool StateEqualsRankZero(const Rank& rank, workloads::TrainingWorkload& workload);

// Every rank's steps, on every rank.
StepLog GatherSteps(const Rank& rank, const std::vector<LoggedStep>& own);

// Every rank's spans by step. `own`: this rank's spans in by_rank[0] of each step.
std::vector<TracedStep> GatherSpans(const Rank& rank, const std::vector<TracedStep>& own);

}  // namespace sparfuse::harness

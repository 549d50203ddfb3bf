// Makes a rank's replica of the trial's workload, and compares and collects over ranks: replicas'
// state, the shared state of local steps, step records, spans.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/live/live_engine.hpp"
#include "core/localsteps/anchors.hpp"
#include "core/transport/world/clocks.hpp"
#include "harness/store/step_log.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

// The workload of the trial's configuration, for this rank.
std::unique_ptr<workloads::TrainingWorkload> MakeTrialWorkload(const Rank& rank);

// On a device: prepares the host's input for the passes of `step`, before a clock runs. On the host
// the passes do that themselves.
void PrepareStep(const Rank& rank, workloads::TrainingWorkload& workload, std::uint64_t step);

// Parameters in the order in which one backward pass of rank 0 produced their gradients, without
// parameters that got none. The same on all ranks. Leaves parameters and optimizer state unchanged,
// and takes the workload's gradient hook.
std::vector<std::size_t> ObserveReadyOrder(const Rank& rank, workloads::TrainingWorkload& workload);

// The memory of a part of the workload's state for a layout's tensors (DeviceState), on its device.
// Part 0 is the parameters, the others are the optimizer's state.
// ready_order: of each tensor, its number among the workload's parameters.
ParameterView StateOf(workloads::TrainingWorkload& workload, std::size_t part,
                      std::span<const std::size_t> ready_order);

// All that follow are collective, and give the same on all ranks unless they say otherwise.

// Parameters and optimizer state of rank 0 to every rank.
void BroadcastState(const Rank& rank, workloads::TrainingWorkload& workload);

// Whether every rank's parameters and optimizer state equal rank 0's bit for bit.
bool StateEqualsRankZero(const Rank& rank, workloads::TrainingWorkload& workload);
// Whether every rank's anchor and outer state equal rank 0's bit for bit.
bool AnchorsEqualRankZero(const Rank& rank, LiveEngine& engine);

// Gives every rank the mean over ranks of running statistics, in rank order, for evaluations. It
// does not change later means.
void AverageStatistics(const Rank& rank, workloads::TrainingWorkload& workload);

// Root mean square distances over ranks, relative to the norm of their reference.
struct Divergence {
  double from_average = 0, from_anchor = 0;
};
Divergence DivergenceOf(const Rank& rank, LiveEngine& engine, const ParameterView& parameters);

// Every rank's parameters become their average over ranks, added up in rank order.
void AverageParameters(const Rank& rank, const ParameterView& parameters);

// Every rank's steps.
StepLog GatherSteps(const Rank& rank, const std::vector<LoggedStep>& own);

// Every rank's spans by step, with the begin of each rank's step on rank 0's clock. `own`: this
// rank's spans in by_rank[0] of each step, and its own clock. clocks: of every rank; used on rank
// 0, and only its result has these times.
std::vector<TracedStep> GatherSpans(const Rank& rank, const std::vector<TracedStep>& own,
                                    std::span<const ClockLine> clocks);

}  // namespace sparfuse::harness

// Compares the shared state of ranks with local steps: whether anchors are equal, and how far
// parameters have diverged.
#pragma once

#include <span>

#include "core/engine/live/live_engine.hpp"
#include "core/localsteps/anchors.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

// The memory of a part of the workload's state for a layout's tensors (DeviceState), on its device.
// Part 0 is the parameters, the others are the optimizer's state.
// ready_order: of each tensor, its number among the workload's parameters.
ParameterView StateOf(workloads::TrainingWorkload& workload, std::size_t part,
                      std::span<const std::size_t> ready_order);
inline ParameterView ParametersOf(workloads::TrainingWorkload& workload,
                                  std::span<const std::size_t> ready_order) {
  return StateOf(workload, 0, ready_order);
}

// All that follow are collective, and give the same on all ranks.

// Whether every rank's anchor and outer state equal rank 0's bit for bit.
bool AnchorsEqualRankZero(const Rank& rank, LiveEngine& engine);

// Root mean square distances over ranks, relative to the norm of their reference.
struct Divergence {
  double from_average = 0, from_anchor = 0;
};
Divergence DivergenceOf(const Rank& rank, LiveEngine& engine, const ParameterView& parameters);

// Every rank's parameters become their average over ranks, added up in rank order.
void AverageParameters(const Rank& rank, const ParameterView& parameters);

}  // namespace sparfuse::harness

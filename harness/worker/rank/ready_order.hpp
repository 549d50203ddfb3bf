// Observes, before the first step, the order in which gradients become ready.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

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

}  // namespace sparfuse::harness

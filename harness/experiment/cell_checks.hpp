// Checks a resolved cell for what a trial would only say once it has started; needs no trial.
#pragma once

#include "harness/records/cell_config.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// Each throws Error{kConfig} without file and line, which the caller knows.

// Live ranks are threads or processes of this machine.
void CheckLiveSize(const CellConfig& config);

// A step takes no more samples than the workload's training data has. Of live cells.
void CheckBatch(const CellConfig& config, const workloads::WorkloadDescriptor& workload);

// Each name of dense_tensors and no_feedback_tensors is a tensor of the workload, or a regular
// expression that is found in one.
void CheckTensorNames(const CellConfig& config);

// A plan that the experiment gives is one of the workload's tensors. Those of a live trial may be
// ready in another order than is known here: then it is their number that is checked.
void CheckGivenPlan(const CellConfig& config);

// The sparsifier can be made with its options; one that is written in Python is not loaded.
void CheckSparsifierOptions(const CellConfig& config);

}  // namespace sparfuse::harness

// Declares the workload that sleeps where others compute, and how long that is. No LibTorch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "workloads/catalog/catalog.hpp"
#include "workloads/models/model_sizes.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {

// Holds how long models took to compute, for workloads that sleep instead. No LibTorch.

// Of one micro-step.
struct RecordedTimes {
  std::size_t batch = 0;  // samples
  double forward_us = 0;
  std::vector<double> backward_us;  // [tensors] in ready order, since the previous gradient
  double tail_us = 0;               // from the last gradient to the end of backward
};

// Throws Error{kInternal} if nothing is recorded.
const RecordedTimes& TimesOf(const ModelSize& model);

// Forward and backward take the recorded times of the catalog's model, in proportion to the batch,
// and leave the cores to selection and exchange, so that many ranks fit on few cores. The optimizer
// runs as everywhere. Nothing is learned: there is no loss (MeanLoss is 0), and Evaluate throws
// Error{kUnsupported}.
//
// A gradient is s * (a * c + sqrt(1 - a^2) * z), by element. s follows from the seed, lognormal
// over rows and over elements, equal on all ranks and at all steps. c follows from seed and step,
// normal, equal on all ranks. z follows from seed, step and rank, normal. So selections of top-k
// with error feedback overlap about as much as those of digits-resnet. Deterministic by seed, rank
// and step.
//
// Precondition: descriptor.sleeps. Throws Error{kConfig} for an option or a batch below one,
// Error{kUnsupported} for a device: it sleeps on the host.
std::unique_ptr<TrainingWorkload> MakeRecordedWorkload(const WorkloadDescriptor& descriptor,
                                                       const WorkloadConfig& config);

}  // namespace sparfuse::workloads

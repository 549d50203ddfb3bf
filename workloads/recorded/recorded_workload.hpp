// Declares the workload that sleeps where others compute. No LibTorch.
#pragma once

#include <memory>

#include "workloads/catalog/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {

// Forward and backward last as long as was recorded of the catalog's model, in proportion to the
// batch, and leave the cores to selection and exchange: many ranks fit on few cores. The optimizer
// runs as everywhere. Nothing is learned: there is no loss (MeanLoss is 0), and Evaluate throws
// Error{kUnsupported}.
//
// A gradient is s * (a * c + sqrt(1 - a^2) * z), by element: s of the seed, lognormal over rows and
// over elements, equal on all ranks and at all steps; c of seed and step, normal, equal on all
// ranks; z of seed, step and rank, normal. So selections of top-k with error feedback have about
// as much in common as those of digits-resnet. Deterministic by seed, rank and step.
//
// Precondition: descriptor.sleeps. Throws Error{kConfig} for an option or a batch below one,
// Error{kUnsupported} for a device: it sleeps on the host.
std::unique_ptr<TrainingWorkload> MakeRecordedWorkload(const WorkloadDescriptor& descriptor,
                                                       const WorkloadConfig& config);

}  // namespace sparfuse::workloads

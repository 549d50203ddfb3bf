// Makes the parts that run a cell from its configuration; used by live and modelled trials alike,
// and to check a cell before anything runs.
#pragma once

#include <span>

#include "baselines/composition.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// The number of steps, from the first that sparsifies, that are checked to conserve mass.
inline constexpr int kVerifiedSteps = 2;

// Throws Error{kConfig} naming the part that does not exist or does not fit.
Composition Compose(const CellConfig& config);

// The number of steps at the beginning of a cell's trials that send all units dense.
int DenseWarmupSteps(const CellConfig& config);

// Tensors in ready order, with the tensors of config.dense_tensors and config.no_feedback_tensors
// marked. Throws Error{kConfig} if one of these fits no tensor.
GradientLayout MakeLayout(std::span<const TensorShape> tensors, const CellConfig& config);
// The same of the tensors that the catalogue's workload has.
GradientLayout CatalogLayout(const CellConfig& config);

}  // namespace sparfuse::harness

// Declares the strategies of methods that synchronise once in a window of steps, or a step later.
#pragma once

#include "core/engine/engine.hpp"

namespace sparfuse {

// "local-steps", dense.
extern const StrategyDescriptor kLocalSteps;
// "sparse-local-steps", which selects from differences tensor by tensor.
extern const StrategyDescriptor kSparseLocalSteps;
// "delayed-units": gradients of a step are applied in the next one.
extern const StrategyDescriptor kDelayedGradients;

}  // namespace sparfuse

// Declares the strategies of methods that synchronise once in a window of steps, or one step late.
#pragma once

#include "core/engine/engine.hpp"

namespace sparfuse {

// "local-steps", dense.
extern const StrategyDescriptor kLocalSteps;
// "sparse-local-steps", which selects from differences tensor by tensor.
extern const StrategyDescriptor kSparseLocalSteps;
// "delayed-units", which applies the gradients of a step in the next step.
extern const StrategyDescriptor kDelayedGradients;

}  // namespace sparfuse

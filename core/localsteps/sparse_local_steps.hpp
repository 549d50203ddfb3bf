// Declares the strategy "sparse-local-steps", which selects from differences tensor by tensor.
#pragma once

#include "core/engine/engine.hpp"

namespace sparfuse {

extern const StrategyDescriptor kSparseLocalSteps;

}  // namespace sparfuse

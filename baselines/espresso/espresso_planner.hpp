// Plans by Espresso: each tensor by itself, by one of the runtime's options.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

extern const PlannerDescriptor kEspressoPlanner;

}  // namespace sparfuse::baselines

// Plans by OMGS-SGD's solver, with times of a profile.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

// Selections and exchanges of merged sizes are the profile's.
extern const PlannerDescriptor kOmgsPlanner;

}  // namespace sparfuse::baselines

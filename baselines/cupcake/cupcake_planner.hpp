// Plans by Cupcake's search for a boundary, with times of a profile, or by its count of tensors.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

// One or two units. Selections and exchanges of their sizes are the profile's; selections are taken
// to run within backward, on the compute lane, as the strategies of plans do it.
extern const PlannerDescriptor kCupcakePlanner;

}  // namespace sparfuse::baselines

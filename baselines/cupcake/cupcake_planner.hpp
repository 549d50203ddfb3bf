// Plans by Cupcake's search for a boundary, with times of a profile, or by its count of tensors.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

// One or two units, selected from on the side lane, or the compute lane if told so. Selections and
// exchanges of their sizes are the profile's, on that lane.
extern const PlannerDescriptor kCupcakePlanner;

}  // namespace sparfuse::baselines

// Plans by MG-WFBP's solver, with times of a profile.
#pragma once

#include "core/fusion/plan.hpp"

namespace sparfuse::baselines {

// The start-up time and the time of a byte are fitted to the profile's exchanges of the sizes that
// the published code would measure, 32 KiB to 2016 KiB in 63 steps. Where the strategy sends
// payloads, an exchange is the all-gather of what is kept of so many elements.
extern const PlannerDescriptor kMgWfbpPlanner;

}  // namespace sparfuse::baselines

// Plans units of given sizes, for systems whose plan is known.
#pragma once

#include <string_view>

#include "core/fusion/plan.hpp"

namespace sparfuse {

inline constexpr std::string_view kGivenPlanner = "given";

// MakePlan throws Error{kConfig} naming option, value and what was expected where the sizes are no
// positive integers, do not add up to the layout's tensors or bytes, or a unit of so many bytes
// ends within a tensor.
PlannerDescriptor GivenPlanner();

}  // namespace sparfuse

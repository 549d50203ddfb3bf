// Makes plans of registered planners, with a made-up profile for those that look at one.
#pragma once

#include <string_view>

#include "baselines/registry.hpp"
#include "core/cost/cost_model.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse::testing {

// 1 ms a tensor.
inline BackwardProfile EvenBackward(std::size_t tensors) {
  return {0, 0.01, std::vector<double>(tensors, 0.001), 0.0005, 0.001};
}

// 1 Gbit/s and 100 us a message.
inline CostModel EvenCost() { return DeclaredCost(1, 1e-4); }

// A plan of a registered planner, checked.
inline Plan PlanOf(std::string_view planner, const PlanInput& input, const Options& options = {}) {
  const PlannerDescriptor& part = FindPlanner(planner);
  Plan plan = part.make(ResolveOptions(planner, part.options, options))->MakePlan(input);
  CheckPlan(plan, input.layout);
  return plan;
}

}  // namespace sparfuse::testing

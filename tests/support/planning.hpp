// Makes layouts, plans of registered planners, and models of steps. Planners that read a profile
// get a made-up one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/cost/cost_model.hpp"
#include "core/engine/model/model_engine.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse::testing {

// Tensors "t0", "t1", ... of these sizes.
inline GradientLayout LayoutOf(const std::vector<std::size_t>& sizes) {
  GradientLayout layout;
  for (const std::size_t n : sizes) {
    layout.Add("t" + std::to_string(layout.tensors()), {static_cast<std::int64_t>(n)}, n);
  }
  return layout;
}

// Matrices of eight columns, if the number of elements allows it.
inline GradientLayout MatricesOf(const std::vector<std::size_t>& sizes) {
  GradientLayout layout;
  for (const std::size_t n : sizes) {
    const auto numel = static_cast<std::int64_t>(n);
    const std::vector<std::int64_t> flat{numel}, matrix{numel / 8, 8};
    layout.Add("tensor", n % 8 == 0 ? matrix : flat, n);
  }
  return layout;
}

// A backward of 1 ms a tensor.
inline BackwardProfile EvenBackward(std::size_t tensors) {
  return {0, 0.01, std::vector<double>(tensors, 0.001), 0.0005, 0.001};
}

// Links of 1 Gbit/s and 100 us a message.
inline CostModel EvenCost() { return DeclaredCost(1, 1e-4); }

// The complete input of a planner with a profile, except its options.
inline PlanInput InputOf(const GradientLayout& layout, const Topology& topology, double density,
                         Sparsified sparsified, const BackwardProfile& backward,
                         const CostModel& cost, std::string_view sparsifier = "topk") {
  return {layout,
          topology,
          density,
          sparsified,
          &backward,
          &cost,
          sparsifier,
          CoreCollective("ring-allreduce").get(),
          CoreCollective("sparse-allgather").get()};
}

// A plan of a registered planner, checked.
inline Plan PlanOf(std::string_view planner, const PlanInput& input, const Options& options = {}) {
  const PlannerDescriptor& part = FindPlanner(planner);
  Plan plan = part.make(ResolveOptions(planner, part.options, options))->MakePlan(input);
  CheckPlan(plan, input.layout);
  return plan;
}

// Steps of a method that sends top-k selections and whose computation takes no time.
inline ModelConfig ModelOf(GradientLayout layout, Plan plan, const Topology& topology) {
  ModelConfig model;
  model.layout = std::move(layout);
  model.plan = std::move(plan);
  model.topology = topology;
  model.sparsifier = "topk";
  model.dense_collective = CoreCollective("ring-allreduce");
  model.sparse_collective = CoreCollective("sparse-allgather");
  return model;
}

// The same with the made-up profile.
inline ModelConfig EvenModelOf(GradientLayout layout, Plan plan, const Topology& topology) {
  ModelConfig model = ModelOf(std::move(layout), std::move(plan), topology);
  model.cost = EvenCost();
  model.backward = EvenBackward(model.layout.tensors());
  return model;
}

}  // namespace sparfuse::testing

// Makes the plans of a live trial: rank 0 plans, every rank goes by its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/cost/cost_model.hpp"
#include "core/engine/timeline.hpp"
#include "harness/catalog/fusion_plan.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/records/profile.hpp"
#include "harness/records/trial.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

class Planning {
 public:
  // Measures a profile if the planner needs one. It uses an instance of the workload of its own, so
  // that the trial's workload keeps its state. The references must outlive this object. Collective.
  Planning(const Rank& rank, const Composition& composition, const Topology& topology,
           const GradientLayout& layout, std::span<const std::size_t> ready_order);

  // The plan to begin with: a dense one if dense steps come first. Collective.
  Plan First() { return Make(0); }

  // A new plan for the steps from `step` on, if there is one. It comes when the dense steps have
  // ended, and every replan_every steps after warm-up. The latter uses the medians of rank 0's
  // backward times in the steps since the last plan. Collective.
  std::optional<Plan> At(std::uint64_t step);

  // Takes the times of a step.
  void Observe(std::uint64_t step, const Timeline& timeline);

  // Adds "plans", and "profile" if there is one.
  void Describe(Outcome& outcome) const;

 private:
  void MeasureProfile(std::span<const std::size_t> ready_order);
  Plan Make(std::uint64_t step);
  bool IsDense(std::uint64_t step) const { return step < composition_.dense_warmup_steps; }

  const Rank& rank_;
  const Composition& composition_;
  const Topology& topology_;
  GradientLayout layout_;
  std::uint64_t warmup_steps_;
  std::uint64_t replan_every_;  // 0: never
  std::optional<Profile> profile_;
  BackwardProfile backward_;
  CostModel cost_;
  std::vector<std::vector<double>> observed_;  // rank 0: [tensors][steps] backward seconds
  std::vector<PlanSummary> plans_;
};

}  // namespace sparfuse::harness

// Computes what merged tensors take, for planners whose costs depend on nothing but how many
// elements they merge.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/fusion/plan_times.hpp"
#include "core/fusion/ready_tensors.hpp"

namespace sparfuse {

// Times of a PlanInput for units of any run of tensors.
class MergedTimes {
 public:
  // Keeps a reference to `input`. Throws as PlanTimes.
  MergedTimes(const PlanInput& input, std::string_view planner);

  // Views of this object. What each tensor takes of the compute lane before it is merged counts as
  // its backward: the copy into the fused buffer, or the selection where that comes ahead.
  ReadyTensors tensors() const { return {elements_, seconds_}; }
  // Selection from so many merged elements on this lane, the compute or the side lane, dispatch
  // included; 0 unless the strategy sparsifies behind.
  double Select(std::size_t elements, Lane lane = Lane::kCompute) const;
  // The exchange of a unit of so many elements: all-reduce, or all-gather of what is kept of them.
  double Exchange(std::size_t elements) const;

 private:
  const PlanInput& input_;
  PlanTimes times_;
  std::vector<std::size_t> elements_;  // [tensors]
  std::vector<double> seconds_;        // [tensors]
};

// The plan with so many tensors in each unit, sparsified as the method does it.
// Precondition: they add up to the tensors of the layout.
Plan PlanOfLengths(std::span<const std::size_t> lengths, const PlanInput& input);

}  // namespace sparfuse

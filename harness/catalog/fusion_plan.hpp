// Encodes fusion plans, and makes rank 0's plan the plan of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse::harness {

// Units and tensors, densities exactly.
std::vector<std::uint8_t> EncodePlan(const Plan& plan);
// Throws Error{kData} if the bytes cannot have come from EncodePlan.
Plan DecodePlan(std::span<const std::uint8_t> bytes);

// A fusion plan in the form of an outcome. The outcomes of other programs may have fewer or more
// keys; readers accept that.
struct PlanSummary {
  struct TensorCounts {  // the number of tensors that travel in each way
    std::size_t dense = 0, offloaded = 0, reduced = 0;
    bool operator==(const TensorCounts&) const = default;
  };
  std::uint64_t step = 0;       // the first step with this plan
  std::string unit_sizes = {};  // "3,8"
  // Positions of the units that are not sparsified, and of the units whose selection runs on the
  // side lane.
  std::vector<std::size_t> dense_units = {}, side_units = {};
  TensorCounts tensors = {};
  // Of all units, if one has several partitions, or a path other than 0.
  std::optional<std::vector<int>> partitions = {}, paths = {};
  bool operator==(const PlanSummary&) const = default;
};
nlohmann::json ToJson(const PlanSummary& plan);

PlanSummary SummaryOf(const Plan& plan, const GradientLayout& layout, std::uint64_t step);

// Gives every rank the plan of rank 0. The inputs of planners may differ between ranks, above all
// times, so the plans of the other ranks are not used. `planned` and `layout` are this rank's.
// Collective over the loop's world, blocking.
//
// Throws Error{kInternal} on every rank if the plan would not mean the same on all of them, because
// their tensors differ or the plan arrived damaged. Their exchanges would never end. The error
// names the ranks that differ from rank 0.
Plan SharePlan(ProgressLoop& loop, const Plan& planned, const GradientLayout& layout);

}  // namespace sparfuse::harness

// Encodes a fusion plan: for other ranks, and as a summary in outcomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "core/fusion/plan.hpp"

namespace sparfuse::harness {

// Units and tensors, densities exactly.
std::vector<std::uint8_t> EncodePlan(const Plan& plan);
// Throws Error{kData} where the bytes cannot have come from EncodePlan.
Plan DecodePlan(std::span<const std::uint8_t> bytes);

// {"step", "unit_sizes", "dense_units", "side_units", "tensors": {"dense", "offloaded",
// "reduced"}}: from which step the plan held, the positions of units that are not sparsified and of
// those that are selected from on the side lane, and how many tensors of `layout` travel in which
// way. Where a unit has several partitions or another path than 0, "partitions" and "paths" are
// those of all units.
nlohmann::json PlanSummary(const Plan& plan, const GradientLayout& layout, std::uint64_t step);

}  // namespace sparfuse::harness

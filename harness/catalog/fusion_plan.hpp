// Encodes fusion plans, and makes rank 0's plan the plan of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "core/fusion/plan.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse::harness {

// Units and tensors, densities exactly.
std::vector<std::uint8_t> EncodePlan(const Plan& plan);
// Throws Error{kData} where the bytes cannot have come from EncodePlan.
Plan DecodePlan(std::span<const std::uint8_t> bytes);

// {"step", "unit_sizes", "dense_units", "side_units", "tensors": {"dense", "offloaded",
// "reduced"}}: from which step the plan held, the positions of units that are not sparsified and of
// those that are selected from on the side lane, and how many tensors of `layout` travel in which
// way. Where a unit has several partitions or another path than 0, "partitions" and "paths" are
// those of all units. JSON: outcomes keep it as it is.
nlohmann::json PlanSummary(const Plan& plan, const GradientLayout& layout, std::uint64_t step);

// Rank 0's plan, on every rank: what planners look at may differ between ranks, times above all, so
// that the others' own plans are of no use. `planned` and `layout` are this rank's; of the others'
// plans nothing is read. Collective over the loop's world, blocking.
//
// Throws Error{kInternal} on every rank, naming those that are not as rank 0, where the plan would
// not mean the same on all: their tensors differ, or it has come otherwise than it was sent. Their
// exchanges would not end.
Plan SharePlan(ProgressLoop& loop, const Plan& planned, const GradientLayout& layout);

}  // namespace sparfuse::harness

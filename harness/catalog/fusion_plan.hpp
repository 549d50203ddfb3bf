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
// Throws Error{kData} where the bytes cannot have come from EncodePlan.
Plan DecodePlan(std::span<const std::uint8_t> bytes);

// A fusion plan as an outcome keeps it. The outcomes of other programs may say less or more of
// theirs, which readers take as it stands.
struct PlanSummary {
  struct TensorCounts {  // how many travel in which way
    std::size_t dense = 0, offloaded = 0, reduced = 0;
    bool operator==(const TensorCounts&) const = default;
  };
  std::uint64_t step = 0;       // from which it held
  std::string unit_sizes = {};  // "3,8"
  // Positions of the units that are not sparsified, and of those that are selected from on the side
  // lane.
  std::vector<std::size_t> dense_units = {}, side_units = {};
  TensorCounts tensors = {};
  // Of all units, where one has several partitions, or another path than 0.
  std::optional<std::vector<int>> partitions = {}, paths = {};
  bool operator==(const PlanSummary&) const = default;
};
nlohmann::json ToJson(const PlanSummary& plan);

PlanSummary SummaryOf(const Plan& plan, const GradientLayout& layout, std::uint64_t step);

// Rank 0's plan, on every rank: what planners look at may differ between ranks, times above all, so
// that the others' own plans are of no use. `planned` and `layout` are this rank's; of the others'
// plans nothing is read. Collective over the loop's world, blocking.
//
// Throws Error{kInternal} on every rank, naming those that are not as rank 0, where the plan would
// not mean the same on all: their tensors differ, or it has come otherwise than it was sent. Their
// exchanges would not end.
Plan SharePlan(ProgressLoop& loop, const Plan& planned, const GradientLayout& layout);

}  // namespace sparfuse::harness

// Plans as ADTopk does: partial sparsification and hybrid collective communication.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/fusion/plan.hpp"

namespace sparfuse {

// The progress of a step on a rank, in seconds since backward began.
struct StepTimes {
  double computed = 0;   // end of backward, copies and selections of the units so far
  double link_free = 0;  // end of their exchanges
};

// The work that one unit adds, in seconds.
struct UnitWork {
  double until_reducible = 0;    // computation until the last tensor of its all-reduce is ready
  double compute = 0;            // all its computation
  std::optional<double> reduce;  // its all-reduce, if it has one
  std::optional<double> gather;  // its all-gather, which follows, if it has one
};

// Returns the progress after a unit. An exchange begins when its tensors are ready and the link is
// idle.
StepTimes After(const StepTimes& before, const UnitWork& unit);

// The view that hybrid communication has of a tensor of a unit.
struct HybridTensor {
  std::size_t elements = 0;
  std::size_t kept = 0;  // entries of the payload; all elements if it is dense
};

// Returns for each tensor whether the unit's all-reduce sends it whole. These are the tensors with
// the largest kept / elements. Their number makes the unit's two exchanges shortest; among equally
// good numbers the smallest wins. But for latency they are the tensors with more than one entry for
// P elements: an entry costs 8 (P - 1) bytes, an element 4 * 2 (P - 1) / P. Both functions return
// seconds and are never called with 0.
std::vector<bool> CheaperReduced(std::span<const HybridTensor> tensors,
                                 const std::function<double(std::size_t elements)>& reduce,
                                 const std::function<double(std::size_t entries)>& gather);

extern const PlannerDescriptor kAdtopkPlanner;

}  // namespace sparfuse

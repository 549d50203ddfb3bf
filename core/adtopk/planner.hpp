// Plans as ADTopk does: partial sparsification and hybrid collective communication.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/fusion/plan.hpp"

namespace sparfuse {

// How far a step has come on a rank. Seconds since backward began.
struct StepTimes {
  double computed = 0;   // backward, copies and selections of the units so far are through
  double link_free = 0;  // and so are their exchanges
};

// What one unit adds. Seconds.
struct UnitWork {
  double until_reducible = 0;    // computation until the last tensor of its all-reduce is ready
  double compute = 0;            // all its computation
  std::optional<double> reduce;  // its all-reduce, if it has one
  std::optional<double> gather;  // its all-gather, which follows, if it has one
};

// An exchange begins when its tensors are ready and the link is idle.
StepTimes After(const StepTimes& before, const UnitWork& unit);

// A tensor of a unit, as hybrid communication looks at it.
struct HybridTensor {
  std::size_t elements = 0;
  std::size_t kept = 0;  // entries of the payload, all of them where it is dense
};

// [tensors] whether it is sent whole in the unit's all-reduce: those with the largest kept /
// elements, as many as make the unit's two exchanges shortest, the fewest of equally good. But for
// latency these are the ones with more than one entry for P elements: an entry costs 8 (P - 1)
// bytes, an element 4 * 2 (P - 1) / P. Both functions give seconds; neither is asked about nothing.
std::vector<bool> CheaperReduced(std::span<const HybridTensor> tensors,
                                 const std::function<double(std::size_t elements)>& reduce,
                                 const std::function<double(std::size_t entries)>& gather);

extern const PlannerDescriptor kAdtopkPlanner;

}  // namespace sparfuse

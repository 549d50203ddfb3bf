// Makes rank 0's plan the plan of all ranks.
#pragma once

#include "core/fusion/plan.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse::harness {

// Rank 0's plan, on every rank: what planners look at may differ between ranks, times above all, so
// that the others' own plans are of no use. `planned` and `layout` are this rank's; of the others'
// plans nothing is read. Collective over the loop's world, blocking.
//
// Throws Error{kInternal} on every rank, naming those that are not as rank 0, where the plan would
// not mean the same on all: their tensors differ, or it has come otherwise than it was sent. Their
// exchanges would not end.
Plan SharePlan(ProgressLoop& loop, const Plan& planned, const GradientLayout& layout);

}  // namespace sparfuse::harness

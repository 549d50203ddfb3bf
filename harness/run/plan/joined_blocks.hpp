// Opens blocks for methods that join an experiment after others have run.
#pragma once

#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/run/plan/trial_plan.hpp"
#include "harness/store/index.hpp"

namespace sparfuse::harness {

// A ratio pairs trials of one block, which run at about the same time. So a live cell that joined a
// part takes the first group of the part's number of blocks in which the cell was tried already, or
// its references have no trial. Its references run in these blocks as well. References are the
// part's and those that its figures divide by.
void OpenBlocks(const PlanContext& context, const std::vector<TrialRow>& rows,
                std::vector<Experiment>& experiments);

}  // namespace sparfuse::harness

// Forces the fusion plans that one side's planners made on the other sides: which cells that are,
// what the model says of them, and what trials that were run with them say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/compare/modelled/modelled_side.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// The cell with the last plan of `outcome`, a trial of it, given in the place of its planner
// (docs/experiment-files.md), without what would change that plan again. Throws Error{kConfig}
// saying why not: the outcome has no plan or no tensors, the method does not send the units of a
// plan, or the plan says more than its units, which is named.
CellConfig WithPlanOf(const CellConfig& cell, const nlohmann::json& outcome);

// Sets `forced` of every cell of the comparison, for each side with the plan that `giver`, a
// position in sides, made. models: as sides; null where there are none. Trials of a side that had
// the plan given count in whatever experiment they are, where it has the reference, too.
void ForcePlans(SystemComparison& comparison, const std::vector<SystemSide>& sides,
                std::size_t giver, DisturbedTrials disturbed,
                const std::vector<std::unique_ptr<ModelledSide>>& models);

}  // namespace sparfuse::harness

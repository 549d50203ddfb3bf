// Forces the fusion plans of one side on the others: finds the cells, the results of the model and
// of trials with these plans, and writes the experiment that runs them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/compare/comparison.hpp"
#include "harness/compare/modelled/modelled_side.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

// The cell with the last plan of `outcome`, a trial of it, given in the place of its planner
// (docs/experiments/method-options.md), without the options that would change that plan again.
// Throws Error{kConfig} saying why not: the outcome has no plan or no tensors, the method does not
// send the units of a plan, or the plan says more than its units, which is named.
CellConfig WithPlanOf(const CellConfig& cell, const nlohmann::json& outcome);

// Sets `forced` of every cell of the comparison, for each side with the plan that `giver`, a
// position in sides, made. models: as sides; null where there are none. Trials of a side that had
// the plan given count in whatever experiment they are, where it has the reference, too.
void ForcePlans(SystemComparison& comparison, const std::vector<SystemSide>& sides,
                std::size_t giver, DisturbedTrials disturbed,
                const std::vector<std::unique_ptr<ModelledSide>>& models);

struct PlanExperiment {
  std::string id;         // "plan-of-a"
  std::string text;       // of the file
  std::size_t plans = 0;  // that are given in it
  // Cells whose plan cannot be forced, and why: "safusion, workers 2: ...".
  std::vector<std::string> left_out;
};

// Of the cells whose `forced` is set (ForcePlans) and whose plan differs on any side. The text
// gives the keys without which a cell would be another one, and no others; it is read back before
// it is returned. `file`: where it will be, for what paths in it are relative to. Throws
// Error{kConfig} where no plan can be given, with the first reason.
PlanExperiment ExperimentOfPlans(const SystemComparison& comparison,
                                 const std::vector<SystemSide>& sides, std::size_t giver,
                                 const Catalog& catalog, const ProfileFolders& profiles,
                                 const std::filesystem::path& file);

}  // namespace sparfuse::harness

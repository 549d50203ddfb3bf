// Forces the fusion plans of one side on the others. Finds the cells, and the results of the model
// and of trials with these plans, and writes the experiment that runs them.
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

// The cell with a fixed plan in the place of its planner (docs/experiments/method-options.md): the
// last plan of `outcome`, from a trial of the cell. Options that would change that plan again are
// removed. Throws Error{kConfig} with the reason if the outcome has no plan or no tensors, if the
// method does not send the units of a plan, or if the plan has more than its units (named in the
// error).
CellConfig WithPlanOf(const CellConfig& cell, const nlohmann::json& outcome);

// Sets `forced` of every cell of the comparison, for each side, with the plan of side `giver` (a
// position in sides). models: in the order of sides; null if there are none. Trials of a side with
// that plan count in every experiment that also has the reference.
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

// For the cells whose `forced` is set (ForcePlans) and whose plan differs on any side. The text
// gives only the keys that the identity of a cell needs, and it is read back before it is returned.
// `file`: its later path, from which its relative paths start. Throws Error{kConfig} with the first
// reason if no plan can be given.
PlanExperiment ExperimentOfPlans(const SystemComparison& comparison,
                                 const std::vector<SystemSide>& sides, std::size_t giver,
                                 const Catalog& catalog, const ProfileFolders& profiles,
                                 const std::filesystem::path& file);

}  // namespace sparfuse::harness

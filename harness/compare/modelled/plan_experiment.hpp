// Writes the experiment that measures one side's plans on the others: each cell with the plan that
// its planner makes and with the plan given, beside the reference, in one block.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/compare/comparison.hpp"

namespace sparfuse::harness {

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

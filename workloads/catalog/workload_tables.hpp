// Declares the tables that the catalog is joined from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/catalog/catalog.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::workloads {

// Models of a size that learns here, on real data.
std::vector<WorkloadDescriptor> TrainedWorkloads();
// The papers' models at their size, on data that is made up.
std::vector<WorkloadDescriptor> PaperWorkloads();

// Models whose times were recorded; their computation is not run.
std::vector<WorkloadDescriptor> RecordedWorkloads();

// A recipe with a momentum of 0.9 and a beta2 of 0.999.
Recipe RecipeOf(std::string optimizer, double learning_rate, double weight_decay,
                std::uint64_t warmup_steps, std::string schedule);

// The common part of all workloads of a kind: units, metric, and the options with `recipe` as
// defaults. The window is in tokens.
WorkloadDescriptor ImageWorkload(std::string name, std::string summary, ModelSize model,
                                 const Recipe& recipe);
WorkloadDescriptor TextWorkload(std::string name, std::string summary, ModelSize model,
                                std::size_t window, const Recipe& recipe);
WorkloadDescriptor QuestionWorkload(std::string name, std::string summary, ModelSize model,
                                    std::size_t window, const Recipe& recipe);

// For models whose batch normalisation keeps running statistics, since their revision 2.
WorkloadDescriptor Normalised(WorkloadDescriptor workload);

}  // namespace sparfuse::workloads

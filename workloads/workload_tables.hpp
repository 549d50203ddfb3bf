// The parts that the catalog is joined from.
#pragma once

#include <vector>

#include "workloads/catalog.hpp"
#include "workloads/optimizer.hpp"

namespace sparfuse {

// Models of a size that learns here, on real data.
std::vector<WorkloadDescriptor> TrainedWorkloads();
// The papers' models at their size, on data that is made up.
std::vector<WorkloadDescriptor> PaperWorkloads();

// The options of every workload, with `recipe` as defaults.
std::vector<OptionSpec> OptionsWith(const Recipe& recipe);

}  // namespace sparfuse

// Makes the table of what a profile says, for people.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "harness/report/table.hpp"

namespace sparfuse::harness {

// Of outcomes as a file of results/profiles has them (harness/README.md): passes, slowest tensors,
// kernels, links. Intervals are 95 %.
std::vector<Table> ProfileTables(const nlohmann::json& outcomes);

}  // namespace sparfuse::harness

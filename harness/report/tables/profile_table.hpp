// Lays out the outcomes of profile trials as tables for people.
#pragma once

#include <vector>

#include "harness/records/profile.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

// Tables of passes, slowest tensors, kernels and links. `outcomes` are as in a file of
// results/profiles (docs/profiles-and-clusters.md). Intervals are 95 %.
std::vector<Table> ProfileTables(const ProfileOutcomes& outcomes);

}  // namespace sparfuse::harness

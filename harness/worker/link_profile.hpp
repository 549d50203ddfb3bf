// How long exchanges between the ranks of a trial take.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/worker/rank.hpp"

namespace sparfuse {

// Adds "link" to the profile and, where the backend has an all-reduce of its own,
// "native_all_reduce"; takes "exchange_dispatch_seconds" from it. The same on all ranks.
// Collective; more than one rank.
void ProfileLinks(const Rank& rank, int repeats, nlohmann::json& profile);

}  // namespace sparfuse

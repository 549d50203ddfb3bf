// Measures exchanges between the ranks of a trial.
#pragma once

#include "harness/worker/profiling/profile_record.hpp"
#include "harness/worker/rank/rank.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {

// Adds "link": between neighbours of a ring through all ranks, hence between nodes where there are
// several; "node_link", in rings of the ranks of a node, where several nodes have several ranks
// each. Both have a fit. Where the backend has an all-reduce of its own adds "native_all_reduce".
// Takes "exchange_dispatch_seconds" from the record. The same on all ranks. Collective; more than
// one rank.
//
//   beside  computation, for processor time where cores compute; null: where they have nothing to
//           do.
void ProfileLinks(const Rank& rank, int repeats, ProfileRecord& record,
                  const Pass* beside = nullptr);

}  // namespace sparfuse::harness

// Measures the fingerprint of a system (docs/comparing.md): no workload is trained.
#pragma once

#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Measures links, collectives and single operations, in rounds of one repetition each, so that what
// disturbs the machine for a moment is in no quantity alone; then the curves of links that the
// model computes with. Rank 0 leaves outcome.json. Seconds; collective.
void RunFingerprint(const Rank& rank);

}  // namespace sparfuse::harness

// Measures the quantities of a fingerprint (docs/comparing/systems.md).
#pragma once

#include <functional>
#include <string>

#include "harness/records/profile.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Links, collectives and single operations, in rounds of one repetition each, so that what disturbs
// the machine for a moment is in no quantity alone. Returns how many rounds count; the fingerprint
// is the same on all ranks. Seconds; collective.
int MeasureFingerprint(const Rank& rank, const std::function<void(const std::string&)>& say,
                       Fingerprint& fingerprint);

}  // namespace sparfuse::harness

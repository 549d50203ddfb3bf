// Measures the quantities of a fingerprint (docs/comparing/systems.md).
#pragma once

#include <functional>
#include <string>

#include "harness/records/profile.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Measures links, collectives and single operations, in rounds of one repetition each, so that a
// short disturbance of the machine does not hit one quantity alone. Returns the number of rounds
// that count; the fingerprint is the same on all ranks. Seconds; collective.
int MeasureFingerprint(const Rank& rank, const std::function<void(const std::string&)>& say,
                       Fingerprint& fingerprint);

}  // namespace sparfuse::harness

// Checks the traffic of a trial against its selections, its spans and its collective.
#pragma once

#include <string>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first step whose bytes, elements or exchanges contradict another record. In every cell,
// ranks receive the bytes that other ranks send, and exchanges, their payload and micro-steps match
// the spans. For dense units around a ring and for payloads that all ranks gather, the payload
// matches the elements, and the sum over ranks is the sum that the collective sends. For whole
// windows of dense local steps around a ring, the same holds including the averaged inner state.
// For topk and randomk, the elements match the density.
//
//   spans  may be null.
std::string WhatBytesContradict(const Trial& trial, const OpenSeries& steps,
                                const OpenSeries* spans);

// The columns of steps.npy that the configuration does not decide: the bytes of a collective not
// named above, and the selection of a sparsifier that does not keep to the density; this includes
// "config.density".
std::vector<std::string> WhatOnlyStepsTell(const Trial& trial);

}  // namespace sparfuse::harness

// Checks the traffic of a trial against its selections, its spans and its collective.
#pragma once

#include <string>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// "" or the first step whose bytes, elements or exchanges another record contradicts. Of every
// cell: what ranks send, others receive; exchanges, their payload and micro-steps are those of the
// spans. Of dense units around a ring and of payloads that all ranks gather: the payload is that of
// the elements, and the ranks together send what the collective has to. Of whole windows of dense
// local steps around a ring: the same, with the inner state that is averaged. Of topk and randomk:
// the elements are those of the density.
//
//   spans  may be null.
std::string WhatBytesContradict(const Trial& trial, const OpenSeries& steps,
                                const OpenSeries* spans);

// The columns of steps.npy that the configuration does not decide: what a collective that is not
// named above sends, and what a sparsifier selects that does not keep to the density; this includes
// "config.density".
std::vector<std::string> WhatOnlyStepsTell(const Trial& trial);

}  // namespace sparfuse::harness

// Compares the record of a trial with its series, and its series with one another.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/series_file.hpp"

namespace sparfuse::harness {

// "" or the first key of a trial with numbers of its own that another key, its series or the
// catalogue's workload contradicts: revisions and sources (parts that the configuration does not
// name), tensors, the hosts of ranks, whether it was disturbed, wall seconds, numbers of steps,
// times of evaluations, densities, and bytes that the emulated link cannot carry.
//
//   series  may lack any; what is held to one that is not there is not looked at.
std::string WhatRecordContradicts(const Trial& trial, const OpenSeriesByFile& series);

// "" or the first evaluation that is not where the cell wants one, or whose time is not that of
// rank 0's steps; an epoch that is not of the cell's batch; a target that was reached and is not
// stated, or the reverse.
std::string WhatEvaluationsContradict(const Trial& trial, const OpenSeries& evaluations,
                                      const OpenSeries& steps);

// Whether the evaluations count epochs, which tell how many samples a step takes.
bool TellsBatch(const OpenSeries& evaluations);

// Columns of steps.npy: times of spans that follow one another on the compute lane of a rank.
inline constexpr std::array kPartsOfAStep = {
    "forward_seconds",    "backward_seconds", "sparsify_seconds", "exposed_communication_seconds",
    "decompress_seconds", "update_seconds",   "outer_seconds"};

// "" or the first part of a traced step that its spans do not add up to; "" where steps were
// recorded without parts.
std::string WhatSpansContradict(const OpenSeries& spans, const OpenSeries& steps);

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

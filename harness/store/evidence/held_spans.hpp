// Holds the spans of a trial to its steps.
#pragma once

#include <array>
#include <string>

#include "harness/store/evidence/open_series.hpp"

namespace sparfuse::harness {

// Columns of steps.npy: times of spans that follow one another on the compute lane of a rank.
inline constexpr std::array kPartsOfAStep = {
    "forward_seconds",    "backward_seconds", "sparsify_seconds", "exposed_communication_seconds",
    "decompress_seconds", "update_seconds",   "outer_seconds"};

// "" or the first part of a traced step that its spans do not add up to; "" if steps were recorded
// without parts.
std::string WhatSpansContradict(const OpenSeries& spans, const OpenSeries& steps);

}  // namespace sparfuse::harness

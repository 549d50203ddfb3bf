// Tells whether a series file is what trials record, and nothing else: numbers, and of spans.npy
// three columns of words.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace sparfuse::harness {

// steps.npy, spans.npy, evaluations.npy
const std::set<std::string>& SeriesFiles();

// "", or why `bytes` is not what harness/files/npy.hpp writes under this name: another header, text
// in a column that has none, or other bytes than those of its rows. Precondition: `name` is one of
// SeriesFiles().
std::string WhatIsWrongWithSeries(const std::string& name, std::string_view bytes);

}  // namespace sparfuse::harness

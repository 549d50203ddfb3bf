// The series of a trial, opened once, and whether their numbers are possible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "harness/records/trial.hpp"
#include "harness/store/evidence/series_file.hpp"

namespace sparfuse::harness {

// A series that is open for reading. `bytes` are another's.
struct OpenSeries {
  std::string_view bytes;
  SeriesHeader header;

  // Nothing if there is no such column, or if it has texts.
  std::optional<double> Number(std::string_view column, std::uint64_t row) const;
  // Precondition: the column has texts. NumPy's padding is removed; characters that are not ASCII
  // become '?'.
  std::string Text(std::string_view column, std::uint64_t row) const;
};

using OpenSeriesByFile = std::map<std::string, OpenSeries>;

// The members of `files` that are complete series. The content must outlive the result.
OpenSeriesByFile OpenAll(const std::map<std::string, std::string>& files);

// "" or the first number that no successful trial can have: one that is not finite, one below zero
// in a column of times, bytes or counts, or a span that ends before it begins. Names file, column,
// row and value.
std::string WhatIsImpossible(const std::string& file, const OpenSeries& series);

// "" or the first column with a unit that trials do not write.
std::string WhatIsWrongWithUnits(const std::string& file, const Series& stated,
                                 const std::string& metric_unit);

}  // namespace sparfuse::harness

// Checks that a series file has the content that trials record, and nothing else: numbers, and in
// spans.npy also three columns of words.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/trial.hpp"

namespace sparfuse::harness {

// steps.npy, spans.npy, evaluations.npy
const std::set<std::string>& SeriesFiles();

struct SeriesColumn {
  std::string name, type;    // "<f8", "<i8", "|b1", "<U12"
  std::uint64_t offset = 0;  // within a row, in bytes
};

// The header of a file.
struct SeriesHeader {
  std::vector<SeriesColumn> columns;
  std::uint64_t rows = 0, row_bytes = 0;
  std::uint64_t begin = 0;  // of the first row, in bytes

  const SeriesColumn* Find(std::string_view name) const;
};

// "" (and sets `header`), or the reason why harness/files/npy.hpp would not write `bytes` under
// this name: another header, text in a column of numbers, or missing or further bytes.
// Precondition: `name` is one of SeriesFiles().
std::string WhatIsWrongWithSeries(const std::string& name, std::string_view bytes,
                                  SeriesHeader* header = nullptr);

// A number of a row; `column` is none of text.
double NumberIn(std::string_view bytes, const SeriesHeader& header, const SeriesColumn& column,
                std::uint64_t row);

// A series that is open for reading. `bytes` are another's.
struct OpenSeries {
  std::string_view bytes;
  SeriesHeader header;

  // Nothing if there is no such column, or if it has texts.
  std::optional<double> Number(std::string_view column, std::uint64_t row) const;
  // The same, and then 0.
  double Value(std::string_view column, std::uint64_t row) const {
    return Number(column, row).value_or(0);
  }
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

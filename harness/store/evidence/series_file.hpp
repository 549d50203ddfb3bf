// Checks that a series file has the content that trials record, and nothing else: numbers, and in
// spans.npy also three columns of words.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace sparfuse::harness

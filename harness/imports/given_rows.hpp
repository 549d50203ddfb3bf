// Reads the rows of others' comma-separated files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/csv_reader.hpp"
#include "harness/imports/given_values.hpp"

namespace sparfuse::harness {

struct GivenRow {
  std::string where;  // "numbers.csv:3"
  std::vector<std::string> fields;
};

// Errors of the file's form are Error{kConfig}, as those of CsvReader.
class GivenRows {
 public:
  // Reads the header. Both must outlive this object; `name` is the file's.
  GivenRows(std::string_view text, const std::string& name);

  // Without white space around its names.
  const std::vector<std::string>& header() const noexcept { return header_; }
  // The next row with a field for each name of the header; nothing behind the last one. Empty lines
  // do not count, and a row with another number of fields becomes a problem.
  std::optional<GivenRow> Next(Problems& problems);

 private:
  const std::string& name_;
  CsvReader reader_;
  std::vector<std::string> header_;
};

}  // namespace sparfuse::harness

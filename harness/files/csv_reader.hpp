// Reads comma-separated values, with quotes doubled inside quoted fields (RFC 4180).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// Reads a text record by record. Errors are Error{kConfig} that begin with "NAME:LINE".
class CsvReader {
 public:
  // Both must outlive this object; `name` is the file's.
  CsvReader(std::string_view text, const std::string& name, char delimiter = ',')
      : text_(text), name_(name), delimiter_(delimiter) {}

  bool AtEnd() const { return at_ >= text_.size(); }
  std::vector<std::string> Record();
  // The line at which the last record begins, from 1.
  int line() const noexcept { return record_line_; }

  [[noreturn]] void Fail(const std::string& what) const;

 private:
  bool Take(char wanted);
  std::string Field();

  std::string_view text_;
  const std::string& name_;
  char delimiter_;
  std::size_t at_ = 0;
  int line_ = 1;
  int record_line_ = 1;
};

}  // namespace sparfuse::harness

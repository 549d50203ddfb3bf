#include "harness/files/csv_reader.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace sparfuse::harness {

std::vector<std::string> CsvReader::Record() {
  record_line_ = line_;
  std::vector<std::string> fields;
  do fields.push_back(Field());
  while (Take(delimiter_));
  Take('\r');
  if (!AtEnd() && !Take('\n')) {
    Fail(delimiter_ == ',' ? "expected a comma or the end of the line"
                           : fmt::format("expected '{}' or the end of the line", delimiter_));
  };
  return fields;
}

void CsvReader::Fail(const std::string& what) const {
  SPARFUSE_THROW(kConfig, fmt::format("{}:{}: {}", name_, record_line_, what));
}

bool CsvReader::Take(char wanted) {
  if (AtEnd() || text_[at_] != wanted) return false;
  if (wanted == '\n') ++line_;
  ++at_;
  return true;
}

std::string CsvReader::Field() {
  std::string field;
  if (!Take('"')) {
    while (!AtEnd() && text_[at_] != delimiter_ && text_[at_] != '\n' && text_[at_] != '\r')
      field += text_[at_++];
    return field;
  }
  while (true) {
    if (AtEnd()) Fail("a quoted field does not end");
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') {
      field += text_[at_++];
    } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      field += '"';
      at_ += 2;
    } else {
      ++at_;
      return field;
    }
  }
}

}  // namespace sparfuse::harness

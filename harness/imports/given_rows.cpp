#include "harness/imports/given_rows.hpp"

#include <fmt/format.h>

namespace sparfuse::harness {

namespace {

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // that spreadsheets write
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

}  // namespace

GivenRows::GivenRows(std::string_view text, const std::string& name)
    : name_(name), reader_(WithoutByteOrderMark(text), name), header_(reader_.Record()) {
  for (std::string& column : header_) column = std::string(Trimmed(column));
}

std::optional<GivenRow> GivenRows::Next(Problems& problems) {
  while (!reader_.AtEnd()) {
    GivenRow row;
    row.fields = reader_.Record();
    row.where = fmt::format("{}:{}", name_, reader_.line());
    if (row.fields.size() == 1 && Trimmed(row.fields[0]).empty()) continue;
    if (row.fields.size() == header_.size()) return row;
    problems.push_back(
        fmt::format("{}: {} fields: expected {}", row.where, row.fields.size(), header_.size()));
  }
  return std::nullopt;
}

}  // namespace sparfuse::harness

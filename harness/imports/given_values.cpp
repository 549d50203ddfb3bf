#include "harness/imports/given_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "core/base/error.hpp"
#include "harness/files/log_text.hpp"

namespace sparfuse::harness {

namespace {

// Spreadsheets may write "sep=;" as the first line, which is no row. 0: no such line.
char SeparatorOf(std::string_view text) {
  constexpr std::string_view kLine = "sep=";
  if (!text.starts_with(kLine) || text.size() < kLine.size() + 2) return 0;
  return text[kLine.size() + 1] == '\n' ? text[kLine.size()] : '\0';
}

bool IsRule(const std::vector<std::string>& fields) {
  return std::ranges::all_of(fields, [](const std::string& field) {
    return field.find('-') != std::string::npos &&
           field.find_first_not_of(" :-") == std::string::npos;
  });
}

}  // namespace

GivenRows::GivenRows(std::string_view text, const std::string& name, char delimiter)
    : name_(name), reader_(text, name, SeparatorOf(text) != 0 ? SeparatorOf(text) : delimiter) {
  if (SeparatorOf(text) != 0) reader_.Record();
  do header_ = reader_.Record();
  while (header_.size() == 1 && Trimmed(header_[0]).empty() && !reader_.AtEnd());
  for (std::string& column : header_) {
    column = std::string(Trimmed(column));
    std::ranges::replace(column, '\n', ' ');  // a cell of a spreadsheet may have two lines
  }
  is_markdown_ =
      delimiter == '|' && header_.size() > 2 && header_.front().empty() && header_.back().empty();
  if (is_markdown_) WithoutMarkup(header_);
}

void GivenRows::WithoutMarkup(std::vector<std::string>& fields) const {
  fields.erase(fields.begin());
  if (!fields.empty() && Trimmed(fields.back()).empty()) fields.pop_back();
  for (std::string& field : fields) {
    for (const std::string_view mark : {"**", "__", "`", "*", "_"}) {
      const std::string_view cell = Trimmed(field);
      if (cell.size() > 2 * mark.size() && cell.starts_with(mark) && cell.ends_with(mark))
        field = std::string(cell.substr(mark.size(), cell.size() - 2 * mark.size()));
    }
  }
}

std::optional<GivenRow> GivenRows::Next(Problems& problems) {
  while (!reader_.AtEnd()) {
    GivenRow row;
    row.fields = reader_.Record();
    row.where = fmt::format("{}:{}", name_, reader_.line());
    if (std::ranges::all_of(row.fields, [](const auto& field) { return Trimmed(field).empty(); }))
      continue;
    if (is_markdown_ && row.fields.size() > 1) WithoutMarkup(row.fields);
    if (is_markdown_ && IsRule(row.fields)) continue;
    if (row.fields.size() == header_.size()) return row;
    problems.push_back(
        fmt::format("{}: {} fields: expected {}", row.where, row.fields.size(), header_.size()));
  }
  return std::nullopt;
}

void ThrowProblems(const Problems& problems) {
  constexpr std::size_t kShown = 20;
  if (problems.empty()) return;
  const auto shown = std::span(problems).first(std::min(problems.size(), kShown));
  const std::size_t more = problems.size() - shown.size();
  SPARFUSE_THROW(kConfig, fmt::format("{}{}\nnothing was imported", fmt::join(shown, "\n"),
                                      more > 0 ? fmt::format("\nand {} more", more) : ""));
}

const GivenText* GivenValues::Find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() || found->second.text.empty() ? nullptr : &found->second;
}

std::string GivenValues::Text(const std::string& key) const {
  const GivenText* given = Find(key);
  return given == nullptr ? "" : given->text;
}

std::string GivenValues::NeedText(const std::string& key, std::string_view expected) const {
  const GivenText* given = Find(key);
  if (given == nullptr) Expected(key, expected);
  return given == nullptr ? "" : given->text;
}

std::optional<double> GivenValues::Number(const std::string& key, Range range) const {
  const GivenText* given = Find(key);
  if (given == nullptr) return std::nullopt;
  const auto value = NumberIn(given->text);
  if (value && range.Has(*value)) return value;
  Expected(key, "a number from " + ::sparfuse::harness::Text(range));
  return std::nullopt;
}

std::optional<int> GivenValues::Integer(const std::string& key, Range range) const {
  const GivenText* given = Find(key);
  if (given == nullptr) return std::nullopt;
  const auto value = NumberIn(given->text);
  if (value && range.Has(*value) && *value == std::floor(*value)) return static_cast<int>(*value);
  Expected(key, "a whole number from " + ::sparfuse::harness::Text(range));
  return std::nullopt;
}

std::optional<int> GivenValues::NeedInteger(const std::string& key, Range range) const {
  if (Find(key) == nullptr) {
    Expected(key, "a whole number from " + ::sparfuse::harness::Text(range));
    return std::nullopt;
  }
  return Integer(key, range);
}

void GivenValues::Expected(const std::string& key, std::string_view expected) const {
  const GivenText* given = Find(key);
  const std::string odd = given == nullptr ? "" : OddCharacters(given->text);
  problems_->push_back(given == nullptr
                           ? fmt::format("{}: no {}: expected {}", where_, key, expected)
                           : fmt::format("{} = \"{}\"{}: expected {}", given->where, given->text,
                                         odd.empty() ? "" : ", which has " + odd, expected));
}

std::optional<double> NumberIn(std::string_view text) {
  text = Trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace sparfuse::harness

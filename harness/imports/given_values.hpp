// Reads the cells of tables from others, row by row, and the value of a key with its place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/csv_reader.hpp"
#include "harness/files/range.hpp"

namespace sparfuse::harness {

// Sentences, one a mistake, each beginning with its place. They are collected, so that a person
// sees all.
using Problems = std::vector<std::string>;

// Throws Error{kConfig} with all of them, if there are any; then nothing is imported.
void ThrowProblems(const Problems& problems);

struct GivenRow {
  std::string where;  // "numbers.csv:3"
  std::vector<std::string> fields;
};

// Errors in the form of the file are Error{kConfig}, like the errors of CsvReader.
class GivenRows {
 public:
  // Reads the header, the first line that is not empty. `text` and `name`, the file's, must outlive
  // this object. A first line "sep=;" from a spreadsheet states the delimiter. If the delimiter is
  // '|', and a line begins and ends with it, the table is Markdown.
  GivenRows(std::string_view text, const std::string& name, char delimiter = ',');

  // The names of columns, without white space around them.
  const std::vector<std::string>& header() const noexcept { return header_; }
  // The next row, with a field for each name of the header; nothing after the last one. Empty lines
  // and rows of empty cells do not count. A row with another number of fields becomes a problem.
  std::optional<GivenRow> Next(Problems& problems);

 private:
  // Removes the bars around a row of Markdown, and the marks of bold text or code in its cells.
  void WithoutMarkup(std::vector<std::string>& fields) const;

  const std::string& name_;
  CsvReader reader_;
  std::vector<std::string> header_;
  bool is_markdown_ = false;
};

struct GivenText {
  std::string text;
  std::string where;  // "numbers.csv:3: gpus", "map.toml:2: workers", "--set workers"
};

// The keys of one result or log. What is asked of it and is missing or wrong becomes a problem.
class GivenValues {
 public:
  // where: "numbers.csv:3", for missing values. `problems` must outlive this object.
  GivenValues(std::string where, Problems& problems)
      : where_(std::move(where)), problems_(&problems) {}

  const std::string& where() const noexcept { return where_; }
  void Set(const std::string& key, GivenText given) { values_[key] = std::move(given); }
  // Null if nothing, or an empty text, is given.
  const GivenText* Find(const std::string& key) const;

  std::string Text(const std::string& key) const;  // "" if it is not given
  std::string NeedText(const std::string& key, std::string_view expected) const;
  std::optional<double> Number(const std::string& key, Range range) const;
  std::optional<int> Integer(const std::string& key, Range range) const;
  std::optional<int> NeedInteger(const std::string& key, Range range) const;

  // "WHERE = TEXT: expected ..." of a key that is given, else as NeedText.
  void Expected(const std::string& key, std::string_view expected) const;

 private:
  std::string where_;
  Problems* problems_;
  std::map<std::string, GivenText> values_;
};

// The finite number that `text` consists of, with white space around it allowed.
std::optional<double> NumberIn(std::string_view text);

}  // namespace sparfuse::harness

// Reads the cells of others' files, row by row, and the value that is given for a key, with its
// place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/csv_reader.hpp"
#include "harness/files/range.hpp"

namespace sparfuse::harness {

// Sentences, one a mistake, that begin with where it is. Collected, so that a person sees all.
using Problems = std::vector<std::string>;

// Throws Error{kConfig} with all of them where there are any: nothing is imported then.
void ThrowProblems(const Problems& problems);

struct GivenRow {
  std::string where;  // "numbers.csv:3"
  std::vector<std::string> fields;
};

// Errors of the file's form are Error{kConfig}, as those of CsvReader.
class GivenRows {
 public:
  // Reads the header, the first line that is not empty. Both must outlive this object; `name` is
  // the file's. A first line "sep=;" of a spreadsheet states the delimiter. With the delimiter '|'
  // and a line that begins and ends by it, the table is Markdown's.
  GivenRows(std::string_view text, const std::string& name, char delimiter = ',');

  // Without white space around its names.
  const std::vector<std::string>& header() const noexcept { return header_; }
  // The next row with a field for each name of the header; nothing behind the last one. Empty
  // lines, and rows of empty cells, do not count, and a row with another number of fields becomes a
  // problem.
  std::optional<GivenRow> Next(Problems& problems);

 private:
  // Takes off the bars around a row of Markdown, and what makes its cells bold or code.
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
  // where: "numbers.csv:3", for what is missing. `problems` must outlive this object.
  GivenValues(std::string where, Problems& problems)
      : where_(std::move(where)), problems_(&problems) {}

  const std::string& where() const noexcept { return where_; }
  void Set(const std::string& key, GivenText given) { values_[key] = std::move(given); }
  // Null where nothing, or an empty text, is given.
  const GivenText* Find(const std::string& key) const;

  std::string Text(const std::string& key) const;  // "" where it is not given
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

// A finite number that is all of `text`, white space around it apart.
std::optional<double> NumberIn(std::string_view text);

}  // namespace sparfuse::harness

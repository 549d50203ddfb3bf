// Reads the map for an import, a TOML file and the keys from the command line, and the cells of
// tables from others, row by row.
#pragma once

#include <filesystem>
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

// The meaning of a key, for help and errors.
struct ImportKey {
  std::string_view name, meaning;
};
// Keys of every result, as a table's column or a constant.
std::span<const ImportKey> ResultKeys();
// LogKeys: constants that only logs have. LineKeys: the keys that a line or a column can have.
std::span<const ImportKey> LogKeys();
std::span<const ImportKey> LineKeys();

struct ImportMap {
  std::map<std::string, GivenText> values;                // the same for all rows
  std::map<std::string, GivenText> columns;               // key -> the file's name for it
  std::vector<GivenText> value_columns;                   // of tables: several columns of values
  std::string columns_are = "method";                     // the key that columns' names give
  std::map<std::string, std::string> workloads, methods;  // theirs -> ours
  std::vector<GivenText> patterns;                        // of logs: regular expressions
  std::string encoding;                                   // as DecodedText takes it
  char delimiter = ',';                                   // between the cells of a row
  std::string thousands, decimal = ".";                   // how numbers are written
  std::vector<std::string> leave_out;                     // cells that are no numbers: "OOM"
  std::map<std::string, std::vector<std::string>> leave_out_rows;  // column -> its cells
  std::vector<GivenText> leave_out_lines;                          // regular expressions
  std::string steps_again;       // of logs: "last", "all" or "": refused
  std::filesystem::path folder;  // that model tables are relative to
};

enum class ImportForm { kTable, kLog };

// As typed.
struct ImportMapRequest {
  std::filesystem::path file;                // "": none
  std::vector<std::string> columns, values;  // "KEY=NAME", "KEY=VALUE": they come before the file's
  std::string encoding;                      // "": as the file has it
};

// Throws Error{kConfig} naming file and line, or the option, for keys that are none and values of
// another type.
ImportMap ReadImportMap(const ImportMapRequest& request, ImportForm form);
ImportMap ParseImportMap(std::string_view text, const std::string& name, ImportForm form);

// `text` in the form that NumberIn takes: with a point as the decimal sign, and without the map's
// separators of thousands, which come before groups of three digits. Text in another form stays
// unchanged.
std::string PlainNumber(std::string_view text, const ImportMap& map);

// The file's text, decoded, with empty lines in the place of the lines that are left out. notes:
// gets the number of these lines.
std::string ImportedText(std::string_view bytes, const std::string& name, const ImportMap& map,
                         std::vector<std::string>* notes);

}  // namespace sparfuse::harness

// Holds a finished table. Every output shows its texts, from a terminal to a page. Renders tables
// as Markdown and LaTeX, and rows of values as CSV.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparfuse::harness {

struct Table {
  std::string title = {};
  std::string caption = {};  // mode, hardware, blocks
  std::vector<std::string> columns = {};
  // A letter a column: 'l' for words, 'r' for numbers; "": all are words.
  std::string alignment = {};
  std::vector<std::vector<std::string>> rows = {};
  // For each row, "" if it has numbers, "failed" if something went wrong, "absent" if nothing ran
  // or nothing counts. Rows beyond the list's end are "".
  std::vector<std::string> looks = {};
  std::vector<std::string> notes = {};  // footnotes, the first is [1]

  void AddColumn(std::string heading, char aligned);
  void AddRow(std::vector<std::string> row, std::string look);
  // The position of a note, from 1. Adds the note if the table lacks it.
  std::size_t NoteOf(const std::string& note);
  // A number of blocks for a column of them: "7"; "2 [1]" with a note, for the interval of two
  // blocks hangs on a single difference.
  std::string BlocksText(std::size_t blocks);
};

nlohmann::json ToJson(const Table& table);  // for spec.json and --json

// Numbers of a figure: rows in groups, each with a heading.
struct GroupedTable {
  std::vector<std::string> columns = {};
  std::vector<std::pair<std::string, std::vector<std::vector<std::string>>>> groups = {};
  std::vector<std::string> notes = {};
};

nlohmann::json ToJson(const GroupedTable& table);  // for spec.json
// As Markdown, with groups as headings of their rows.
std::string Render(const GroupedTable& table);

// kText: columns side by side, for a terminal. kAligned: Markdown without the title, with numbers
// aligned to the right. kLatex: rules of the package booktabs.
enum class TableFormat { kText, kMarkdown, kAligned, kLatex };
// The format named "text", "md" or "latex".
TableFormat TableFormatOf(std::string_view name);
std::string Render(const Table& table, TableFormat format);

// Comma-separated values (RFC 4180, with line feeds): a line with the keys of `columns`, in its
// order, then one for each row. Each row has all keys; null gives an empty field.
std::string CsvOf(const nlohmann::ordered_json& columns,
                  const std::vector<nlohmann::ordered_json>& rows);

}  // namespace sparfuse::harness

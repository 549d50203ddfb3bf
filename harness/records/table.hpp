// Holds a finished table: every output, from a terminal to a page, shows these texts.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sparfuse::harness {

struct Table {
  std::string title;
  std::string caption;  // mode, hardware, blocks
  std::vector<std::string> columns;
  std::string alignment;  // a letter a column: 'l' for words, 'r' for numbers; "": all are words
  std::vector<std::vector<std::string>> rows;
  // Of each row, "" for one with numbers: "failed" where something went wrong, "absent" where
  // nothing ran or nothing counts. Rows beyond the list's end are "".
  std::vector<std::string> looks;
  std::vector<std::string> notes;  // footnotes, the first is [1]

  void AddColumn(std::string heading, char aligned);
  void AddRow(std::vector<std::string> row, std::string look);
  // The position of a note, from 1; it is added where the table lacks it.
  std::size_t NoteOf(const std::string& note);

  bool operator==(const Table&) const = default;
};

nlohmann::json ToJson(const Table& table);

}  // namespace sparfuse::harness

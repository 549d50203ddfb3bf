// Reads the map for an import: a TOML file, and the keys from the command line.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/imports/given_values.hpp"

namespace sparfuse::harness {

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

// Reads the map for others' files: a TOML file, and the keys that the command line adds to it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/imports/given_values.hpp"

namespace sparfuse::harness {

// What a key means, for help and errors.
struct ImportKey {
  std::string_view name, meaning;
};
// Of every result; a table's column or a constant.
std::span<const ImportKey> ResultKeys();
// Of logs besides: constants, and what a line or column has.
std::span<const ImportKey> LogKeys();
std::span<const ImportKey> LineKeys();

struct ImportMap {
  std::map<std::string, GivenText> values;                // the same for all rows
  std::map<std::string, GivenText> columns;               // key -> the file's name for it
  std::vector<GivenText> value_columns;                   // of tables: several columns of values
  std::string columns_are = "method";                     // the key that their names stand for
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
  std::vector<std::string> columns, values;  // "KEY=NAME", "KEY=VALUE": before those of the file
  std::string encoding;                      // "": as the file has it
};

// Throws Error{kConfig} naming file and line, or the option, for keys that are none and values of
// another type.
ImportMap ReadImportMap(const ImportMapRequest& request, ImportForm form);
ImportMap ParseImportMap(std::string_view text, const std::string& name, ImportForm form);

// `text` as NumberIn takes it: without the map's separators of thousands, which stand before three
// digits each, and with a point for its decimal sign. What is written otherwise stays as it is.
std::string PlainNumber(std::string_view text, const ImportMap& map);

// The file's text, decoded, with empty lines in the place of those that are left out. notes: gets
// how many these are.
std::string ImportedText(std::string_view bytes, const std::string& name, const ImportMap& map,
                         std::vector<std::string>* notes);

}  // namespace sparfuse::harness

// Lists every key that an experiment file may have: one table that readers check files against and
// that `sparfuse list keys` prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

struct KeyRow {
  std::string table;     // where the key stands: "[repeat]", "[[claim]]", or one of those below
  std::string name;      // "blocks"
  std::string type;      // "integer, at least 1"
  std::string unit;      // "seconds"; "" where it has none
  std::string fallback;  // the default in words or as TOML; "" where the key must be given
  std::string meaning;   // one sentence
};

// Tables that are not named by one [table] of TOML alone.
inline constexpr const char* kTopTable = "top of the file";
inline constexpr const char* kPartTable = "[[part]], or the top of a file without parts";
inline constexpr const char* kCellTable = "[defaults], [[axis]]";  // the keys of a cell
inline constexpr const char* kFigureKindTable = "[[figure]] of some kinds";

// In the order in which a reader meets the tables.
const std::vector<KeyRow>& ExperimentKeys();

// The names of a table's keys: "[[claim]]".
std::vector<std::string> KeysOf(std::string_view table);

}  // namespace sparfuse::harness

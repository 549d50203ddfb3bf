// Lists every key that an experiment file may have: one table that readers check files against and
// that `sparfuse list keys` prints.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/range.hpp"

namespace sparfuse::harness {

// What a file may ask for outside its cells; GivenKeysOfCells() has their ranges.
inline constexpr Range kMinutes{0.001, 1e6};
inline constexpr Range kBlocks{1, 10'000};
inline constexpr Range kSeeds{0, 1e15};
inline constexpr Range kTimeoutSeconds{0.001, 2'592'000};  // 30 days
inline constexpr Range kShareOfCores{0.001, 1};
inline constexpr Range kSlowdown{1.001, 100};
inline constexpr Range kReruns{0, 100};
inline constexpr Range kFigureRanks{0, 65'535};
inline constexpr Range kStatedRatios{1e-9, 1e9};
inline constexpr std::size_t kLongestId = 100;       // characters: it is part of folders' names
inline constexpr std::size_t kMostCells = 10'000;    // of a file
inline constexpr std::size_t kMostTrials = 100'000;  // of a part

struct KeyRow {
  std::string table;     // where the key stands: "[repeat]", "[[claim]]", or one of those below
  std::string name;      // "blocks"
  std::string type;      // "integer, 1 to 64"
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

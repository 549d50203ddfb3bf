// Describes the keys of an experiment file, except the keys of cells, table by table: records that
// readers fill and check. `sparfuse list keys` prints the keys.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/records/given_record.hpp"

namespace sparfuse::harness {

inline constexpr Range kStatedRatios{1e-9, 1e9};
inline constexpr std::size_t kLongestId = 100;       // characters: it is part of folders' names
inline constexpr std::size_t kMostCells = 10'000;    // of a file
inline constexpr std::size_t kMostTrials = 100'000;  // of a part

// The members that are JSON are tables of keys of cells, as the file gives them, or are read by
// themselves.

// The top of a file, without the keys of a part.
struct GivenHead {
  std::string id, title, paper;
  double minutes = 0;
  std::vector<std::string> calibration;
  nlohmann::json published, not_run, part;
};

// The name of a [[part]], and the keys that the top of a file without parts also has.
struct GivenPartName {
  std::string id, title;
};
struct GivenPart {
  std::string reference;
  nlohmann::json defaults, axis, exclude, repeat, quiet, claim, figure;
};

// [[exclude]]
struct GivenExclusion {
  nlohmann::json when;
  std::string reason;
};

// [quiet]
struct GivenQuiet : QuietLimits {};

// [[claim]]
struct GivenClaim {
  std::string quote, metric, source;
  nlohmann::json of, over;
  std::vector<std::string> for_each;
  bool difference = false;
  std::optional<double> stated, figure;
  std::string judge = "stated", expect;
  std::optional<double> equals, less_than, at_most, at_least, more_than;
};

// [[figure]]: of every kind, and of some.
struct GivenFigure {
  std::string kind, name, title;
  nlohmann::json where, methods, link_gbps;
  std::string x, y, metric, series, normalise, reference;
  int rank = 0;
  bool log_y = true;
  nlohmann::json targets;
  std::string modelled;  // the id of a part
  nlohmann::json published;
};

// A key with its table: "[repeat]", "[[claim]]", or one of the names below.
struct KeyRow : GivenKey {
  std::string table;
};

// Tables whose name is not one [table] of TOML.
inline constexpr const char* kTopTable = "top of the file";
inline constexpr const char* kPartTable = "[[part]], or the top of a file without parts";
inline constexpr const char* kCellTable = "[defaults], [[axis]]";  // the keys of a cell
inline constexpr const char* kFigureKindTable = "[[figure]] of some kinds";

// In the order in which a reader meets the tables.
const std::vector<KeyRow>& ExperimentKeys();

// The names of a table's keys: "[[claim]]".
std::vector<std::string> KeysOf(std::string_view table);

}  // namespace sparfuse::harness

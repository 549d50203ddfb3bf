// Chooses keys of a cell's configuration by their role. The table is in cell_config.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/range.hpp"

namespace sparfuse::harness {

// Ranges are far wider than real experiments. They are narrow enough that no duration overflows,
// and that a misplaced digit does not exhaust the machine.
inline constexpr Range kLinkGbps{0.001, 100'000};
inline constexpr Range kLinkAlphaMicroseconds{0, 1'000'000};
inline constexpr Range kLinkHostMicroseconds{0, 1'000'000};
inline constexpr Range kBroadcastBytes{0, 1e12};
// The limit of a shaped link: sleeping cannot emulate less.
inline constexpr double kMinEmulableAlphaMicroseconds = 100;

// Ranks of live trials share this machine, threads of one process or processes of it.
inline constexpr int kMostLiveWorkers = 1024;
inline constexpr int kMostLiveThreads = 4096;  // of all ranks together

// A key that files may give, of a cell or of another record (given_record.hpp).
struct GivenKey {
  std::string name;
  Range range;
  std::string type;      // "integer, 1 to 64"
  std::string unit;      // "seconds"; "" if it has none
  std::string fallback;  // the default in words or as TOML; "" if the file must give the key
  std::string meaning;   // one sentence
  std::string column;    // of a cell's: heads its column in tables; "" if it has none
};
std::span<const GivenKey> GivenKeysOfCells();
std::vector<std::string> CellKeyNames();
// Null if a cell has no such key.
const GivenKey* FindCellKey(std::string_view name);
// "" if `value`, as a file gives it, has the key's type and range, else the expected form: "a
// number in (0, 1]". Precondition: a cell has the key.
std::string WhatIsWrong(std::string_view key, const nlohmann::json& value);

// MethodKeys: the keys in which two cells of one setting may differ. SparsityKeys: those that a
// dense method lacks.
std::span<const std::string> MethodKeys();
std::span<const std::string> SparsityKeys();
// The keys that distinguish cells in figures and tables, the most telling first.
std::span<const std::string> PanelKeys();
// The keys that place a cell and set its duration. A modelled cell and a live one may differ in
// them and still be points of one curve.
std::span<const std::string> LaunchKeys();

// Equal for configurations that differ in `keys` alone.
std::string CanonicalWithout(nlohmann::json config, std::span<const std::string> keys);

}  // namespace sparfuse::harness

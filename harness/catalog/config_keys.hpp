// Lists the keys of a cell's configuration with types, defaults and meanings, and the metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/range.hpp"

namespace sparfuse::harness {

// Ranges are far wider than what anybody runs, and narrow enough that no duration overflows and no
// machine drowns in what a misplaced digit asks for.
inline constexpr Range kLinkGbps{0.001, 100'000};
inline constexpr Range kLinkAlphaMicroseconds{0, 1'000'000};
inline constexpr Range kLinkHostMicroseconds{0, 1'000'000};
// Of a shaped link: sleeping cannot emulate less.
inline constexpr double kMinEmulableAlphaMicroseconds = 100;

// Ranks of live trials share this machine, threads of one process or processes of it.
inline constexpr int kMostLiveWorkers = 1024;
inline constexpr int kMostLiveThreads = 4096;  // of all ranks together

enum class KeyType {
  kString,
  kInteger,  // in `range`
  kNumber,   // in `range`
  kDensity,  // in (0, 1]
  kTable,
  kStrings,  // a list of them
  kLink,     // a table of LinkShape's keys, or "none"
};

struct ConfigKey {
  std::string name;
  KeyType type;
  Range range = {};  // of integers and numbers
  // Of strings only. Empty: any, or what the catalog has.
  std::vector<std::string> choices = {};
  std::string unit = "";
  std::string fallback = "";  // the default, in words or as TOML; "": the file must give the key
  std::string meaning = "";   // one sentence
};

// The keys in which two cells of one setting may differ, and those of them that a dense method
// lacks.
std::span<const std::string> MethodKeys();
std::span<const std::string> SparsityKeys();
// What tells cells apart in figures and tables, the most telling first.
std::span<const std::string> PanelKeys();
// How cells are placed and how long they run: a modelled cell and a live one may differ in these
// and still be points of one curve.
std::span<const std::string> LaunchKeys();

// Equal for configurations that differ in `keys` alone.
std::string CanonicalWithout(nlohmann::json config, std::span<const std::string> keys);

std::span<const ConfigKey> ConfigKeys();
std::vector<std::string> ConfigKeyNames();
const ConfigKey* FindConfigKey(std::string_view name);

// "integer, 1 to 64": what a value of the key is, in words.
std::string TypeText(const ConfigKey& key);

// "" where `value` has the key's type and range, else what was expected: "a number in (0, 1]".
std::string WhatIsWrong(const ConfigKey& key, const nlohmann::json& value);

// Names of the metrics that trials store, for claims and figures.
std::span<const std::string> MetricNames();

}  // namespace sparfuse::harness

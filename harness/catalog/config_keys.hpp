// Lists the keys of a cell's configuration with types, defaults and meanings, and the metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// Of a shaped link: sleeping cannot emulate less.
inline constexpr double kMinEmulableAlphaMicroseconds = 100;

enum class KeyType {
  kString,
  kInteger,  // at least `min`
  kNumber,   // above 0
  kDensity,  // in (0, 1]
  kTable,
  kStrings,  // a list of them
  kLink,     // { gbps, alpha_us } or "none"
};

struct ConfigKey {
  std::string name;
  KeyType type;
  std::int64_t min = 0;
  std::vector<std::string> choices =
      {};  // strings only; empty: checked against the catalog, or any
  std::string unit = "";
  std::string fallback = "";  // the default, in words or as TOML; "": the file must give the key
  std::string meaning = "";   // one sentence
  // What a configuration without the key has: it came after others, whose identity must not change,
  // and stands there only where it has another value. null: nothing is known of such a key.
  nlohmann::json absent = nullptr;
};

// What two cells of one setting differ in, and the part of it that a dense method lacks.
std::span<const std::string> MethodKeys();
std::span<const std::string> SparsityKeys();
// What tells cells apart in figures and tables, the most telling first.
std::span<const std::string> PanelKeys();
// How cells are placed and how long they run: a modelled cell and a live one may differ in these
// and still be points of one curve.
std::span<const std::string> LaunchKeys();

std::span<const ConfigKey> ConfigKeys();
std::vector<std::string> ConfigKeyNames();
const ConfigKey* FindConfigKey(std::string_view name);

// What `config` has of a key, or what it means that it has not; null where that is nothing.
nlohmann::json ConfigValue(const nlohmann::json& config, const std::string& key);
// Gives `config` a key, but where it means the same without.
void SetConfigValue(nlohmann::json& config, const std::string& key, nlohmann::json value);

// "integer, at least 1": what a value of the key is, in words.
std::string TypeText(const ConfigKey& key);

// "" where `value` has the key's type and range, else what was expected: "a number in (0, 1]".
std::string WhatIsWrong(const ConfigKey& key, const nlohmann::json& value);

// Names of the metrics that trials store, for claims and figures.
std::span<const std::string> MetricNames();

}  // namespace sparfuse::harness

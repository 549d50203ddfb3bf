#include "harness/imports/import_map.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr ImportKey kResultKeys[] = {
    {"source", "the paper and table, or the address, that the numbers are from"},
    {"system", "a name for what they were measured on: small letters, digits, - _ ."},
    {"workload", "one of `sparfuse list workloads`, or table:FILE.json"},
    {"method", "one of `sparfuse list methods`"},
    {"sparsifier", "one of `sparfuse list sparsifiers`"},
    {"density", "fraction of elements sent, in (0, 1]"},
    {"workers", "how many workers trained together"},
    {"ranks_per_node", "workers of a node; goes with network_gbps"},
    {"network_gbps", "what the source calls the bandwidth of a node, 10^9 bit/s"},
    {"batch_per_worker", "samples of a worker's step"},
    {"units_per_sample",
     "tokens of a sample, where samples/s are of a workload that counts tokens"},
    {"per", "whether a rate is of one worker or of all: worker or system"},
    {"metric", "throughput, step_seconds, final_metric or seconds_to_target"},
    {"value", "a number, perhaps with its deviation: 925.0 +- 4.4"},
    {"unit", "images/s, samples/s, tokens/s; ms, s, steps/s; %, 1; min, h"},
    {"run", "which of several repetitions: 0, 1, ..."}};
constexpr ImportKey kLogKeys[] = {
    {"warmup", "how many first steps are left out; of lines without a step, how many lines"},
    {"steps_per_epoch", "where lines count epochs"},
    {"metric_unit", "of what is evaluated: 1, % or perplexity"},
    {"target", "of what is evaluated: when it was reached becomes a metric"}};
constexpr ImportKey kLineKeys[] = {
    {"step", "steps done; within the epoch, where there is an epoch"},
    {"epoch", "epochs done"},
    {"seconds", "of a step"},
    {"milliseconds", "of a step"},
    {"rate", "in `unit`, of a worker or of all as `per` says"},
    {"system_rate", "of all workers, which `per` is held to"},
    {"elapsed", "seconds since training began"},
    {"clock_ms", "time of day in milliseconds: training began at the first one"},
    {"loss", "of training"},
    {"metric", "what was evaluated"}};

bool Has(std::span<const ImportKey> keys, std::string_view name) {
  return std::ranges::find(keys, name, &ImportKey::name) != keys.end();
}

std::vector<std::string> NamesOfKeys(std::span<const ImportKey> keys) {
  std::vector<std::string> names;
  for (const ImportKey& key : keys) names.emplace_back(key.name);
  return names;
}

// Of a log, metric, value and unit of the result follow from the lines; its unit is the rate's.
bool IsValueKey(std::string_view name, ImportForm form) {
  const bool follows = name == "metric" || name == "value";
  return Has(kResultKeys, name) ? form == ImportForm::kTable || !follows
                                : form == ImportForm::kLog && Has(kLogKeys, name);
}

std::vector<std::string> ValueKeys(ImportForm form) {
  std::vector<std::string> names;
  for (const auto keys : {ResultKeys(), LogKeys()}) {
    for (const std::string& name : NamesOfKeys(keys)) {
      if (IsValueKey(name, form)) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> ColumnKeys(ImportForm form) {
  return NamesOfKeys(form == ImportForm::kTable ? ResultKeys() : LineKeys());
}

std::string TextOf(const TomlFile& file, const std::string& pointer) {
  const json& value = *file.Find(pointer);
  if (value.is_string()) return value;
  if (value.is_number()) return value.dump();
  file.FailValue(pointer, "a string or a number");
}

void ReadStrings(const TomlFile& file, const std::string& table,
                 std::map<std::string, std::string>& into) {
  const json* names = file.Find("/" + table);
  if (names == nullptr) return;
  if (!names->is_object()) file.FailValue("/" + table, "{ \"their name\" = \"ours\", ... }");
  for (const auto& [theirs, ours] : names->items()) {
    if (!ours.is_string())
      file.Fail("/" + table, fmt::format("{}: {} = {}: expected one of our names, in quotes", table,
                                         theirs, Shown(ours)));
    into[theirs] = ours;
  }
}

ImportMap MapOf(const TomlFile& file, ImportForm form) {
  ImportMap map;
  std::vector<std::string> known = ValueKeys(form);
  for (const char* table : {"columns", "workloads", "methods"}) known.emplace_back(table);
  if (form == ImportForm::kLog) known.emplace_back("patterns");
  file.CheckKeys("", "a map", known);
  const auto where = [&](const std::string& pointer, const std::string& key) {
    return fmt::format("{}: {}", file.Where(pointer), key);
  };
  for (const std::string& key : ValueKeys(form)) {
    if (const std::string at = "/" + key; file.Find(at) != nullptr)
      map.values[key] = {TextOf(file, at), where(at, key)};
  }
  if (file.Find("/columns") != nullptr) {
    file.CheckKeys("/columns", "columns", ColumnKeys(form));
    for (const std::string& key : ColumnKeys(form)) {
      if (const std::string at = "/columns/" + key; file.Find(at) != nullptr)
        map.columns[key] = {TextOf(file, at), where(at, "columns: " + key)};
    }
  }
  ReadStrings(file, "workloads", map.workloads);
  ReadStrings(file, "methods", map.methods);
  if (const json* patterns = file.Find("/patterns"); patterns != nullptr) {
    if (!patterns->is_array() || patterns->empty())
      file.FailValue("/patterns", "a list of regular expressions");
    for (std::size_t i = 0; i < patterns->size(); ++i) {
      const std::string at = fmt::format("/patterns/{}", i);
      if (!(*patterns)[i].is_string()) file.FailValue(at, "a regular expression");
      map.patterns.push_back({(*patterns)[i], where(at, fmt::format("patterns[{}]", i))});
    }
  }
  return map;
}

// "KEY=TEXT" of an option.
std::pair<std::string, GivenText> Pair(const char* option, const std::string& given,
                                       const std::vector<std::string>& known) {
  const std::size_t equals = given.find('=');
  const std::string key = given.substr(0, equals);
  if (equals == std::string::npos || equals + 1 == given.size()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} {}: expected KEY={}", option, given,
                                        option == std::string_view("--set") ? "VALUE" : "COLUMN"));
  }
  if (std::ranges::find(known, key) == known.end()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} {}: unknown key \"{}\"{}", option, given, key,
                                        Suggestion(key, known)));
  }
  return {key, {given.substr(equals + 1), fmt::format("{} {}", option, key)}};
}

}  // namespace

std::span<const ImportKey> ResultKeys() { return kResultKeys; }
std::span<const ImportKey> LogKeys() { return kLogKeys; }
std::span<const ImportKey> LineKeys() { return kLineKeys; }

ImportMap ParseImportMap(std::string_view text, const std::string& name, ImportForm form) {
  return MapOf(TomlFile::Parse(text, name), form);
}

ImportMap ReadImportMap(const ImportMapRequest& request, ImportForm form) {
  ImportMap map;
  if (!request.file.empty()) {
    map = MapOf(TomlFile::Read(request.file), form);
    map.folder = request.file.parent_path();
  }
  for (const std::string& given : request.columns) {
    auto [key, value] = Pair("--column", given, ColumnKeys(form));
    map.columns[key] = std::move(value);
  }
  for (const std::string& given : request.values) {
    auto [key, value] = Pair("--set", given, ValueKeys(form));
    map.columns.erase(key);
    map.values[key] = std::move(value);
  }
  return map;
}

}  // namespace sparfuse::harness

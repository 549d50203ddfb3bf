#include "harness/report/tables/columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "harness/catalog/metrics.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kLink = "link.gbps";

// The cell keys that have a column title, in the order of the table of keys.
const std::vector<KeyColumn>& UsualColumns() {
  static const std::vector<KeyColumn> kColumns = [] {
    std::vector<KeyColumn> columns;
    for (const GivenKey& key : GivenKeysOfCells()) {
      if (!key.column.empty())
        columns.push_back({key.name == "link" ? kLink : key.name, key.column});
    }
    return columns;
  }();
  return kColumns;
}

constexpr MetricColumn kThroughput[] = {
    {.metric = "throughput", .title = "throughput", .interval = true, .ratio = "vs"},
    {.metric = "step_seconds", .title = "step"},
    {.metric = "exposed_communication_seconds",
     .title = "exposed comm.",
     .share_of = "step_seconds"},
    {.metric = "exchanges", .title = "exchanges/step"},
    // Of collectives that select by themselves, payloads are not counted.
    {.metric = "payload_bytes", .title = "payload/step", .uncounted_at_zero = true},
    {.metric = "sent_bytes", .title = "sent/step"},
    {.metric = "achieved_density", .title = "achieved density"},
    {.metric = "tensors_missing", .title = "tensors missing/step", .rare = true}};
constexpr MetricColumn kConvergence[] = {
    {.metric = "final_metric", .title = "final metric", .interval = true, .ratio = "vs"},
    {.metric = "steps_to_target", .title = "steps to target", .interval = true, .of_target = true},
    {.metric = "seconds_to_target",
     .title = "time to target",
     .interval = true,
     .ratio = "time vs"},
    {.metric = "exchanges", .title = "exchanges/step"},
    {.metric = "sent_bytes", .title = "sent/step"},
    {.metric = "achieved_density", .title = "achieved density"}};

// Adds the paths of all values that are not tables.
void AddPaths(const json& value, const std::string& path, std::set<std::string>& paths) {
  if (!value.is_object() || value.empty()) {
    paths.insert(path);
    return;
  }
  for (const auto& [key, inner] : value.items()) AddPaths(inner, path + "." + key, paths);
}

// The keys of the configurations that are neither the method nor usual.
std::vector<KeyColumn> OtherColumns(const std::vector<json>& configs) {
  std::set<std::string> paths;
  for (const json& config : configs) {
    for (const auto& [key, value] : config.items()) AddPaths(value, key, paths);
  }
  paths.erase("method");
  for (const KeyColumn& usual : UsualColumns()) paths.erase(usual.path);
  std::vector<KeyColumn> columns;
  for (const std::string& path : paths) {
    // Another cell has a table here, whose keys are listed instead.
    const auto inner = paths.lower_bound(path + ".");
    if (inner != paths.end() && inner->starts_with(path + ".")) continue;
    if (path == "link") continue;  // null for an unshaped link
    columns.push_back({path, path.substr(path.rfind('.') + 1)});
  }
  return columns;
}

// Whether the cells differ in the column. A cell without an option is ignored, because the name of
// its part implies that.
bool Differ(const std::vector<json>& configs, const KeyColumn& column) {
  const bool option = column.path.find("_options.") != std::string::npos;
  std::optional<json> first;
  for (const json& config : configs) {
    const json value = KeyValue(config, column);
    if (option && value.is_null()) continue;
    if (!first) first = value;
    if (value != *first) return true;
  }
  return false;
}

// The workload of a configuration; nullptr if it is a model table that no file of this run named.
const workloads::WorkloadDescriptor* KnownWorkload(const json& config, const Catalog& catalog) {
  const std::string name = config.at("workload");
  return workloads::IsTable(name) ? workloads::FindTable(name) : FindEntry(catalog.workloads, name);
}

}  // namespace

std::vector<KeyColumn> KeyColumnsOf(const std::vector<json>& configs) {
  std::vector<KeyColumn> columns;
  for (const KeyColumn& column : UsualColumns()) {
    const bool always = column.path == "workload" || column.path == "workers";
    if (always || Differ(configs, column)) columns.push_back(column);
  }
  std::map<json, std::vector<json>> alike;
  for (const json& config : configs) {
    json shown = json::array({config.value("method", "")});
    for (const KeyColumn& column : columns) shown.push_back(KeyValue(config, column));
    alike[shown].push_back(config);
  }
  for (const KeyColumn& column : OtherColumns(configs)) {
    if (std::ranges::any_of(alike,
                            [&](const auto& group) { return Differ(group.second, column); })) {
      columns.push_back(column);
    }
  }
  std::map<std::string, int> titles;
  for (const KeyColumn& column : columns) ++titles[column.title];
  for (KeyColumn& column : columns) {
    if (titles[column.title] > 1) column.title = column.path;
  }
  return columns;
}

std::vector<KeyColumn> KeyColumnsOf(const Part& part) {
  std::vector<json> configs;
  for (const Cell& cell : part.cells) configs.push_back(cell.json);
  return KeyColumnsOf(configs);
}

json KeyValue(const json& config, const KeyColumn& column) {
  const std::size_t dot = column.path.find('.');
  const json value = config.value(column.path.substr(0, dot), json());
  if (dot == std::string::npos) return value;
  std::string pointer = column.path.substr(dot);
  std::ranges::replace(pointer, '.', '/');
  const json::json_pointer at(pointer);
  return value.contains(at) ? value.at(at) : json();
}

std::string KeyText(const json& config, const KeyColumn& column) {
  const json value = KeyValue(config, column);
  if (column.path == kLink) {
    return LinkWords(StoredLink(config.value("link", json())));
  }
  if (column.path == "workload") return WorkloadLabel(value.get<std::string>());
  return value.is_null()           ? kNone
         : value.is_string()       ? value.get<std::string>()
         : value.is_number_float() ? fmt::format("{}", value.get<double>())
                                   : value.dump();
}

std::string KeyWords(const std::string& key, const json& value) {
  if (key == "link") return LinkWords(StoredLink(value));
  if (key == "workers") return fmt::format("{} worker{}", value.dump(), value == 1 ? "" : "s");
  std::string name = key;
  std::ranges::replace(name, '_', ' ');
  if (value.is_null() || (value.is_object() && value.empty())) return "no " + name;
  if (value.is_object()) {
    std::string words;
    for (const auto& [inner, of] : value.items()) {
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", inner,
                           of.is_string() ? of.get<std::string>() : of.dump());
    }
    return words;
  }
  const std::string text = value.is_string()         ? value.get<std::string>()
                           : value.is_number_float() ? fmt::format("{:g}", value.get<double>())
                                                     : value.dump();
  const bool says_itself =
      key == "workload" || key == "mode" || key == "method" || key == "sparsifier";
  return says_itself ? text : name + " " + text;
}

std::span<const MetricColumn> MetricColumnsOf(const Part& part) {
  const auto converges = [](const Cell& cell) { return cell.json["kind"] == "convergence"; };
  if (std::ranges::any_of(part.cells, converges)) return kConvergence;
  return kThroughput;
}

std::vector<MetricColumn> MetricColumnsOf(const Part& part, std::span<const std::string> named) {
  const auto usual = MetricColumnsOf(part);
  std::vector<MetricColumn> columns(usual.begin(), usual.end());
  for (const std::string& name : MetricNames()) {
    const bool has = std::ranges::any_of(
        columns, [&](const MetricColumn& column) { return column.metric == name; });
    if (has || std::ranges::find(named, name) == named.end()) continue;
    columns.push_back({.metric = name.c_str(), .title = name.c_str(), .interval = true});
  }
  return columns;
}

std::string UnitOf(std::string_view metric) {
  if (metric.find("seconds") != std::string_view::npos) return "s";
  return metric.find("_bytes") != std::string_view::npos ? "B" : "1";
}

std::string UnitOf(std::string_view metric, const json& config, const Catalog& catalog) {
  if (metric != "throughput") return UnitOf(metric);
  const auto* workload = KnownWorkload(config, catalog);
  return (workload != nullptr ? workload->unit : "units") + "/s";
}

std::string UnitOf(std::string_view metric, const CellResult& cell, const Catalog& catalog) {
  const json& config = cell.cell->json;
  // The file of a stored trial's model table may be elsewhere: then the trial itself says the unit.
  const bool trial_says = metric == "final_metric" ||
                          (metric == "throughput" && KnownWorkload(config, catalog) == nullptr);
  if (trial_says && !cell.trials.empty()) {
    const TrialRow& trial = *cell.trials.begin()->second;
    if (const auto unit = trial.units.find(metric); unit != trial.units.end())
      return std::string(unit->second);
  }
  return UnitOf(metric, config, catalog);
}

}  // namespace sparfuse::harness

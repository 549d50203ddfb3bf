#include "harness/site/site_cells.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/report/provenance.hpp"
#include "harness/report/spec_cells.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/report/tables/wording.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// A trial of the cell, for what all of them have in common.
const TrialRow& AnyOf(const SideCell& cell) {
  return cell.newest != nullptr ? *cell.newest : *cell.result.set_aside.back();
}

// Keys that tell apart what stands on one page: those in which cells of the part differ, and of the
// keys that panels of figures are told apart by also those in which cells of several parts do.
std::vector<KeyColumn> KeysOf(const std::vector<json>& part, const std::vector<KeyColumn>& all) {
  static const std::set<std::string> kShown = {"workload", "workers", "mode", "kind"};
  std::vector<KeyColumn> keys;
  const auto add = [&](const KeyColumn& key) {
    const bool is_there =
        std::ranges::any_of(keys, [&](const KeyColumn& each) { return each.path == key.path; });
    if (!is_there && !kShown.contains(key.path)) keys.push_back(key);
  };
  for (const KeyColumn& key : all) {
    if (std::ranges::count(PanelKeys(), key.path.substr(0, key.path.find('.'))) > 0) add(key);
  }
  for (const KeyColumn& key : KeyColumnsOf(part)) add(key);
  return keys;
}

json SettingJson(const json& config, const std::vector<KeyColumn>& keys) {
  json setting = json::array();
  const bool dense = config.value("sparsifier", std::string()) == "none";
  for (const KeyColumn& key : keys) {
    if (dense && std::ranges::count(SparsityKeys(), key.path.substr(0, key.path.find('.'))) > 0)
      continue;  // the method says it
    if (const std::string text = KeyText(config, key); text != kNone)
      setting.push_back({key.title, text});
  }
  return setting;
}

json TrialsJson(const CellResult& cell) {
  json ids = json::array();
  for (const auto& [block, trial] : cell.trials) ids.push_back(trial->trial_id);
  return ids;
}

json FailedJson(const CellResult& cell) {
  json failed = json::array();
  for (const TrialRow* trial : cell.set_aside) {
    failed.push_back(
        {{"trial", trial->trial_id},
         {"why", FailureOf(*trial)},
         {"message", trial->annotations.empty() ? "" : Shareable(trial->annotations.back())}});
  }
  return failed;
}

// What a system says by itself: other systems' cells decide nothing about its references.
std::map<CellKey, ComparedCell> RatiosOf(SystemSide side, const CompareRequest& request) {
  side.outcome = [](const TrialRow&) { return json(); };  // plans are compared elsewhere
  CompareRequest alone = request;
  alone.experiments.clear();
  alone.least_sides = 1;
  std::map<CellKey, ComparedCell> ratios;
  SystemComparison compared = CompareSystems({std::move(side)}, alone);
  for (ComparedPart& part : compared.parts) {
    for (ComparedCell& cell : part.cells) ratios.emplace(cell.key, std::move(cell));
  }
  return ratios;
}

std::string MetricOf(const TrialRow& trial, const CompareRequest& request) {
  if (!request.metric.empty()) return request.metric;
  if (trial.imported()) return trial.config.value("metric", std::string("throughput"));
  return trial.kind == "convergence" ? "final_metric" : "throughput";
}

}  // namespace

json SiteCells(const std::vector<SiteSystem>& systems, const CompareRequest& request) {
  std::vector<std::map<CellKey, SideCell>> cells;
  for (const SiteSystem& system : systems) cells.push_back(CellsOf(system.side, request.disturbed));
  std::map<std::pair<std::string, std::string>, std::map<std::string, json>> parts;
  std::map<std::string, json> every;
  for (const auto& of_system : cells) {
    for (const auto& [key, cell] : of_system) {
      const json& config = AnyOf(cell).config.Value();
      parts[{key.experiment, key.part}][key.config_hash] = config;
      every[key.config_hash] = config;
    }
  }
  const auto values = [](const std::map<std::string, json>& by_hash) {
    std::vector<json> configs;
    for (const auto& [hash, config] : by_hash) configs.push_back(config);
    return configs;
  };
  const std::vector<KeyColumn> all = KeyColumnsOf(values(every));
  std::map<std::pair<std::string, std::string>, std::vector<KeyColumn>> keys;
  for (const auto& [part, configs] : parts) keys[part] = KeysOf(values(configs), all);

  std::vector<json> entries;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const std::map<CellKey, ComparedCell> ratios = RatiosOf(systems[i].side, request);
    for (const auto& [key, cell] : cells[i]) {
      const TrialRow& trial = AnyOf(cell);
      const std::string metric = MetricOf(trial, request);
      const auto found = ratios.find(key);
      const bool is_reference = trial.method == request.reference && !trial.imported();
      const bool has_ratio = found != ratios.end() && !trial.imported();
      const SideValue* value = has_ratio ? &found->second.sides[0] : nullptr;
      const auto absolute = cell.result.Over(metric);
      std::string lacks = value == nullptr ? "" : value->lacks;
      if (trial.imported()) lacks = "imported";
      if (cell.newest == nullptr) lacks = FailureOf(trial);
      if (is_reference && cell.newest != nullptr && !absolute)
        lacks = cell.result.OnlyDisturbed() ? "disturbed" : "no " + metric;
      const auto unit = trial.units.find(metric);
      entries.push_back(
          {{"system", systems[i].key},
           {"experiment", key.experiment},
           {"part", key.part},
           {"config_hash", key.config_hash},
           {"method", trial.method},
           {"workload", WorkloadLabel(trial.workload)},
           {"workers", trial.workers},
           {"mode", trial.mode},
           {"kind", trial.kind},
           {"setting", SettingJson(trial.config, keys.at({key.experiment, key.part}))},
           {"metric", metric},
           {"unit", unit == trial.units.end() ? "" : std::string(unit->second)},
           {"is_reference", is_reference},
           {"reference", value == nullptr || found->second.reference.empty()
                             ? json()
                             : json(found->second.reference)},
           {"ratio", value == nullptr || !lacks.empty() ? json() : IntervalJson(value->ratio)},
           {"absolute", IntervalJson(absolute)},
           {"lacks", lacks},
           {"trials", TrialsJson(cell.result)},
           {"disturbed", cell.result.disturbed.size()},
           {"apart", cell.result.ValuesApart(metric).size()},
           {"failed", FailedJson(cell.result)}});
    }
  }
  std::ranges::stable_sort(entries, {}, [](const json& entry) {
    return std::tuple(entry["experiment"].get<std::string>(), entry["part"].get<std::string>(),
                      entry["mode"].get<std::string>(), entry["workload"].get<std::string>(),
                      entry["workers"].get<int>(), entry["setting"].dump(),
                      entry["method"].get<std::string>());
  });
  return entries;
}

}  // namespace sparfuse::harness

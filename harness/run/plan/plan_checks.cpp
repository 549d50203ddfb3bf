#include "harness/run/plan/plan_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "harness/catalog/model_table.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "workloads/data/data_file.hpp"
#include "workloads/data/prepared.hpp"
#include "workloads/models/layers.hpp"
#include "workloads/weights/safetensors.hpp"

namespace sparfuse::harness {

namespace {

// Whether the cell's method combines several tensors in one exchange and has no other exchange.
bool IsOneExchange(const CellConfig& config) {
  const Composition composition = Compose(config);
  if (composition.needs_profile() || !composition.strategy->dense_units) return false;
  const GradientLayout layout = CatalogLayout(config);
  const Topology topology{config.workers, config.ranks_per_node};
  const Plan plan = MakePlan(composition, layout, topology, nullptr, nullptr);
  return plan.units.size() == 1 && layout.tensors() > 1;
}

double MegabytesOf(const std::string& workload) {
  return static_cast<double>(workloads::LayersOf(workload).numel() * sizeof(float)) / 1e6;
}

void AddOneExchange(const Part& part, std::vector<std::string>& warnings) {
  std::set<std::string> seen;  // "method workload"
  for (const Cell& cell : part.cells) {
    const CellConfig& config = cell.config;
    const bool is_compared_with = config.method == part.reference || config.method == "dense";
    if (!is_compared_with || config.workers == 1 || config.kind != TrialKind::kThroughput ||
        !seen.insert(config.method + " " + config.workload).second || !IsOneExchange(config)) {
      continue;
    }
    warnings.push_back(fmt::format(
        "part {}: {} on {} sends all gradients ({:.1f} MB) in one exchange, and overlaps none of "
        "it with the backward pass: ratios to it show overlap as well as the methods; "
        "method_options = {{ threshold_bytes = ... }} makes smaller buckets",
        part.id, config.method, WorkloadLabel(config.workload), MegabytesOf(config.workload)));
  }
}

void AddSingleWorkers(const Part& part, std::vector<std::string>& warnings) {
  std::size_t alone = 0;
  for (const Cell& cell : part.cells) {
    alone += cell.config.workers == 1 && cell.config.kind == TrialKind::kThroughput;
  }
  if (alone == 0) return;
  warnings.push_back(
      fmt::format("part {}: {} cell(s) have workers = 1 and exchange nothing: "
                  "methods differ there in their computation alone",
                  part.id, alone));
}

void AddEqualMethods(const Part& part, std::vector<std::string>& warnings) {
  std::map<std::string, std::set<std::string>> methods;  // by configuration without the name
  for (const Cell& cell : part.cells) {
    CellConfig config = cell.config;
    config.method.clear();
    config.method_content.clear();
    methods[ConfigHash(config)].insert(cell.config.method);
  }
  std::set<std::set<std::string>> seen;
  for (const auto& [hash, names] : methods) {
    if (names.size() < 2 || !seen.insert(names).second) continue;
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    warnings.push_back(fmt::format(
        "part {}: {} are made of the same parts with the same options: they differ in name alone",
        part.id, list));
  }
}

}  // namespace

std::vector<std::string> VacuousComparisons(const Experiment& experiment) {
  std::vector<std::string> warnings;
  for (const Part& part : experiment.parts) {
    if (MethodsOf(part).size() < 2) continue;
    AddOneExchange(part, warnings);
    AddSingleWorkers(part, warnings);
    AddEqualMethods(part, warnings);
  }
  return warnings;
}

namespace {

using nlohmann::json;

constexpr const char* kControl = "dense";

// The line that adds a control to the part.
std::string LineFor(const Part& part) {
  for (const json& axis : part.axes) {
    if (!axis.contains("method") || !axis["method"].is_array()) continue;
    json methods = axis["method"];
    methods.insert(methods.begin(), kControl);
    return "method = " + methods.dump();
  }
  return fmt::format("method = {}",
                     json::array({kControl, part.cells.front().config.method}).dump());
}

}  // namespace

std::vector<std::string> MissingControls(const Experiment& experiment) {
  std::vector<std::string> warnings;
  for (const Part& part : experiment.parts) {
    const bool measures = std::ranges::any_of(part.cells, [](const Cell& cell) {
      const CellConfig& config = cell.config;
      return !config.modelled() && config.kind == TrialKind::kThroughput && config.workers > 1;
    });
    if (!measures || !part.reference.empty()) continue;
    warnings.push_back(
        fmt::format("part {}: no cell is its reference: without a control in each block, a slow "
                    "method looks like a disturbed hour, and `sparfuse compare` has no ratio; its "
                    "[[axis]] with {} has one, or reference = \"METHOD\" names one of its methods",
                    part.id, LineFor(part)));
  }
  return warnings;
}

namespace {

// The values that the file gives for a key, in defaults and axes.
json GivenOf(const Part& part, const char* key) {
  json given = json::array();
  if (part.defaults.contains(key)) given.push_back(part.defaults[key]);
  for (const json& axis : part.axes) {
    if (!axis.contains(key)) continue;
    const json& values = axis[key];
    if (!values.is_array()) given.push_back(values);
    for (const json& value : values.is_array() ? values : json::array()) given.push_back(value);
  }
  return given;
}

}  // namespace

std::vector<std::string> LengthsInWindows(const Experiment& experiment) {
  std::set<std::string> warnings;
  for (const Part& part : experiment.parts) {
    for (const auto& [key, member] : {std::pair("warmup_steps", &CellConfig::warmup_steps),
                                      std::pair("steps", &CellConfig::steps)}) {
      const json given = GivenOf(part, key);
      if (given.empty()) continue;
      for (const Cell& cell : part.cells) {
        const MethodChoice& method = cell.config.method_options;
        const int steps = cell.config.*member;
        if (!method.has_local_steps() || std::ranges::find(given, json(steps)) != given.end())
          continue;
        warnings.insert(fmt::format("part {}: {} of method {} is {}: whole windows of {} steps",
                                    part.id, key, cell.config.method, steps,
                                    method.window_steps()));
      }
    }
  }
  return {warnings.begin(), warnings.end()};
}

std::vector<std::string> ResultsThatDependOnTimes(const Experiment& experiment) {
  std::set<std::string> warnings;
  for (const Part& part : experiment.parts) {
    for (const Cell& cell : part.cells) {
      if (cell.config.modelled() || !cell.config.method_options.begins_when_idle()) continue;
      warnings.insert(
          fmt::format("part {}: method {} with trigger = \"idle\": the steps that receive depend "
                      "on times, so equal seeds may give other parameters",
                      part.id, cell.config.method));
    }
  }
  return {warnings.begin(), warnings.end()};
}

std::vector<std::string> MissingData(const Experiment& experiment) {
  std::vector<const CellConfig*> cells;
  for (const Part& part : experiment.parts) {
    for (const Cell& cell : part.cells) cells.push_back(&cell.config);
  }
  return MissingDataOf(cells);
}

std::vector<std::string> MissingDataOf(const std::vector<const CellConfig*>& cells) {
  const std::filesystem::path folder = workloads::ResolveDataDirectory({});
  std::set<std::string> data, weights;
  for (const CellConfig* cell : cells) {
    if (!cell->data.empty()) data.insert(cell->data);
    if (!cell->weights.empty()) weights.insert(cell->weights);
  }
  std::vector<std::string> missing;
  const auto require = [&](const char* what, const std::string& name,
                           const std::filesystem::path& file, const char* verb) {
    std::error_code none;
    if (std::filesystem::exists(file, none)) return;
    missing.push_back(fmt::format(
        "the {} \"{}\": {} is not there; `sparfuse {} prepare {} --from PLACE` makes it", what,
        name, file.string(), verb, name));
  };
  for (const std::string& name : data)
    require("data set", name, workloads::PreparedFolder(folder, name) / "meta.json", "data");
  for (const std::string& name : weights)
    require("weights", name, workloads::WeightsFile(folder, name), "weights");
  return missing;
}

}  // namespace sparfuse::harness

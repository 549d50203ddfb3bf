#include "harness/bundle/bundle_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "harness/files/canonical.hpp"
#include "harness/report/machines.hpp"
#include "harness/report/results.hpp"
#include "harness/store/origin.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr double kMostRelative = 1e-9;

struct TableRow {
  const TrialRow* any = nullptr;
  CellResult cell;
};

// JSON has no infinity, which is an end of one block's interval.
json Finite(double value) { return std::isfinite(value) ? json(value) : json(); }

json MetricsOf(const CellResult& cell) {
  std::map<std::string, std::string> units;
  for (const auto& [block, trial] : cell.trials) {
    for (const auto& [name, value] : trial->metrics)
      units[std::string(name)] = trial->units.at(name);
  }
  json metrics = json::object();
  for (const auto& [name, unit] : units) {
    auto interval = cell.Over(name);
    if (!interval) interval = cell.Average(name);
    if (!interval) continue;  // only disturbed trials have it
    metrics[name] = {{"value", Finite(interval->value)},
                     {"low", Finite(interval->low)},
                     {"high", Finite(interval->high)},
                     {"n", cell.Values(name).size()},
                     {"unit", unit}};
  }
  return metrics;
}

json RowJson(const TableRow& row) {
  const TrialRow& any = *row.any;
  json trials = json::array();
  for (const auto& [block, trial] : row.cell.trials) trials.push_back(trial->trial_id);
  json set_aside = json::object();
  for (const TrialRow* trial : row.cell.set_aside) set_aside[trial->trial_id] = FailureOf(*trial);
  return {{"experiment", any.experiment},
          {"part", any.part},
          {"system", ShownMachine(any.system_hash)},
          {"hardware", HardwareLine(any.system)},
          {"config", any.config_hash.substr(0, 12)},
          {"revisions", ShortHash(CanonicalJson(any.revisions))},
          {"kind", any.kind},
          {"mode", any.mode},
          {"method", any.method},
          {"workload", any.workload},
          {"workers", any.workers},
          {"trials", trials},
          {"set_aside", set_aside},
          {"metrics", MetricsOf(row.cell)}};
}

std::string DifferenceAt(const std::string& where, const json& stored, const json& computed) {
  const std::string said = fmt::format("{}: the bundle has {}, its trials give {}", where,
                                       stored.dump(), computed.dump());
  if (stored.is_number() && computed.is_number()) {
    const double a = stored, b = computed;
    return std::abs(a - b) <= kMostRelative * std::max(std::abs(a), std::abs(b)) ? "" : said;
  }
  if (stored.type() != computed.type()) return said;
  if (stored.is_object() || stored.is_array()) {
    if (stored.size() != computed.size())
      return fmt::format("{}: the bundle has {} entries, its trials give {}", where, stored.size(),
                         computed.size());
    if (stored.is_array()) {
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const std::string found =
            DifferenceAt(fmt::format("{}/{}", where, i), stored[i], computed[i]);
        if (!found.empty()) return found;
      }
      return "";
    }
    for (const auto& [key, value] : stored.items()) {
      if (!computed.contains(key)) return fmt::format("{}: its trials give no {}", where, key);
      const std::string found = DifferenceAt(where + "/" + key, value, computed[key]);
      if (!found.empty()) return found;
    }
    return "";
  }
  return stored == computed ? "" : said;
}

}  // namespace

json TableOfTrials(std::vector<TrialRow> rows, int bundle_version) {
  SortByAge(rows);
  if (bundle_version > 1) TellStoresApart(rows, "");
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, TableRow>
      table;
  for (const TrialRow& row : rows) {
    TableRow& entry = table[{row.experiment, row.part, row.config_hash, row.system_hash,
                             std::string(row.revisions.Text())}];
    entry.any = &row;
    AddTrial(entry.cell, row);
  }
  json made = json::array();
  for (const auto& [key, row] : table) made.push_back(RowJson(row));
  return made;
}

std::string FirstDifference(const json& stored, const json& computed) {
  return DifferenceAt("table.json", stored, computed);
}

}  // namespace sparfuse::harness

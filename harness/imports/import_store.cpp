// Adds imported results to the store.
#include <fmt/format.h>

#include <limits>
#include <map>
#include <tuple>

#include "harness/catalog/model_table.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "harness/imports/imports.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/store/scrubber.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kDigits = 8;

// The difference between a stored trial and another with its identity. It is of the imported
// metric, if that differs. "" if all numbers are equal.
std::string WhatDiffers(const TrialRow& stored, const TrialRow& other, const std::string& metric) {
  std::string differs;
  for (const auto& [name, value] : other.metrics) {
    const auto known = stored.metrics.find(name);
    if (known != stored.metrics.end() && known->second == value) continue;
    if (!differs.empty() && name != metric) continue;
    differs = known == stored.metrics.end()
                  ? fmt::format("no {}", name)
                  : fmt::format("{} = {} {}", name, known->second, stored.units.at(name));
  }
  return differs;
}

double OrNaN(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

// Adds a column if any row has a value. Rows without one get NaN.
template <class Rows, class Get>
void AddColumn(NpyTable& table, const char* name, const char* unit, const Rows& rows, Get get) {
  std::vector<double> values;
  bool any = false;
  for (const auto& row : rows) {
    any = any || get(row).has_value();
    values.push_back(OrNaN(get(row)));
  }
  if (any) table.AddColumn(name, unit, std::move(values));
}

void WriteSeries(const std::filesystem::path& directory, const ImportedResult& result,
                 std::map<std::string, Series>& series) {
  if (!result.log.empty()) {
    NpyTable table("the lines of the log that have a time, a rate or a loss");
    AddColumn(table, "step", "", result.log, [](const ImportedStep& each) { return each.step; });
    std::vector<bool> measured;
    for (const ImportedStep& each : result.log) measured.push_back(each.measured);
    table.AddColumn("measured", "", std::move(measured));
    AddColumn(table, "step_seconds", "seconds", result.log,
              [](const ImportedStep& each) { return each.seconds; });
    AddColumn(table, "rate", "as in the log", result.log,
              [](const ImportedStep& each) { return each.rate; });
    AddColumn(table, "loss", "nats", result.log,
              [](const ImportedStep& each) { return each.loss; });
    table.Write(directory / "steps.npy");
    series["steps.npy"] = SeriesOf(table);
  }
  if (result.curve.empty()) return;
  NpyTable table("every evaluation of the log");
  std::vector<std::int64_t> steps;
  std::vector<double> seconds, metric, loss;
  for (const ImportedEvaluation& each : result.curve) {
    steps.push_back(std::llround(each.step));
    seconds.push_back(OrNaN(each.seconds));
    metric.push_back(each.metric);
    loss.push_back(OrNaN(each.loss));
  }
  table.AddColumn("step", "", std::move(steps));
  table.AddColumn("seconds", "seconds", std::move(seconds));
  table.AddColumn("metric", result.unit, std::move(metric));
  table.AddColumn("loss", "nats", std::move(loss));
  table.Write(directory / "evaluations.npy");
  series["evaluations.npy"] = SeriesOf(table);
}

// Digits of the result's content. Another result of the same setting has other digits.
std::string NumbersOf(const Trial& trial, const ImportedResult& result) {
  json numbers = {{"metrics", ToJson(trial.metrics)},
                  {"deviation", result.deviation},
                  {"steps", result.steps},
                  {"standard_error", result.standard_error},
                  {"log", json::array()},
                  {"curve", json::array()}};
  const auto number = [](const std::optional<double>& value) {
    return value ? json(*value) : json();
  };
  for (const ImportedStep& each : result.log)
    numbers["log"].push_back({number(each.step), number(each.seconds), number(each.rate),
                              number(each.loss), each.measured});
  for (const ImportedEvaluation& each : result.curve)
    numbers["curve"].push_back({each.step, each.metric, number(each.seconds), number(each.loss)});
  return ContentHash(numbers).substr(0, kDigits);
}

}  // namespace

ImportPlan PlanImport(std::span<const ImportedResult> results, const std::vector<TrialRow>& rows) {
  std::map<std::tuple<std::string, std::string, int>, const TrialRow*> known;
  for (const TrialRow& row : rows) {
    if (row.imported() && row.counts()) known[{row.config_hash, row.system_hash, row.block}] = &row;
  }
  ImportPlan plan;
  for (const ImportedResult& result : results) {
    if (known.empty()) {
      plan.add.push_back(&result);
      continue;
    }
    const TrialRow row = RowOf(TrialOf(result));
    const auto found = known.find({row.config_hash, row.system_hash, row.block});
    if (found == known.end()) {
      plan.add.push_back(&result);
      continue;
    }
    const std::string differs = WhatDiffers(*found->second, row, result.metric);
    if (differs.empty()) {
      ++plan.present;
      continue;
    }
    plan.refused.push_back(fmt::format(
        "{}: {}: {:.6g} {}, and {} has {}; `sparfuse annotate {} --reason ...` takes that one out, "
        "`run` tells repetitions apart",
        result.where, TitleOf(result), result.value, result.unit, found->second->trial_id, differs,
        found->second->trial_id));
  }
  return plan;
}

std::vector<std::string> AddImported(const Store& store, const StoreLock& lock,
                                     std::span<const ImportedResult* const> results) {
  std::vector<std::string> ids;
  for (const ImportedResult* result : results) {
    Trial trial = TrialOf(*result);
    const std::string hash = trial.config_hash, system = trial.system_hash;
    const ImportedSetting& setting = result->setting;
    trial.origin = system.substr(0, kDigits);  // the same in every store that imports it
    const std::string stem = fmt::format(
        "{}-{}-w{}-{}-{}-{}-b{}", setting.method, WorkloadLabel(setting.workload), setting.workers,
        hash.substr(0, kDigits), system.substr(0, kDigits), NumbersOf(trial, *result), setting.run);
    const std::string first = fmt::format("{}/{}/{}-1", kImported, setting.system, stem);
    if (const auto left = store.Directory(first);
        SomethingIsAt(left) && !SomethingIsAt(left / "trial.json"))
      store.Discard(lock, first);  // left by a killed import
    const std::string id = store.CreateTrial(lock, std::string(kImported), setting.system, stem);
    trial.trial_id = id;
    const std::filesystem::path directory = store.Directory(id);
    json config = trial.config;
    config["seed"] = 0;
    config["block"] = setting.run;
    config["trial_id"] = id;
    // Written first: it marks the directory as an unfinished trial.
    WriteFileDurably(directory / "config.json", config.dump(1) + "\n");
    PrivateFacts facts;
    facts.AddUsers(CurrentUsers());
    WritePrivateFacts(directory, facts);
    WriteSeries(directory, *result, trial.series);
    trial.files = {"config.json"};
    for (const auto& [file, described] : trial.series) trial.files.push_back(file);
    store.Finish(lock, trial);
    ids.push_back(id);
  }
  return ids;
}

}  // namespace sparfuse::harness

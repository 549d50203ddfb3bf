// Lays out imported results, which stand beside ours without a comparison.
#include <fmt/format.h>

#include "harness/catalog/model_table.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The origin of a number, as the import recorded it.
json SaidOf(const TrialRow& row) {
  const json& provenance = row.provenance;
  return provenance.is_object() ? provenance.value("imported", json::object()) : json::object();
}

std::string ImportedValue(const ImportedCell& cell, const std::string& metric) {
  const auto interval = cell.result.Over(metric);
  const auto average = cell.result.Average(metric);
  if (!average) return kNone;
  std::string text = Quantity(average->value, cell.any->units.at(metric));
  if (cell.any->units.at(metric) == "accuracy" || cell.any->units.at(metric) == "f1")
    text = fmt::format("{:.4g} {}", average->value, cell.any->units.at(metric));
  if (interval && interval->has_bounds())
    return text + SpreadText(*interval, cell.any->units.at(metric));
  const json said = SaidOf(*cell.any);
  if (metric != cell.any->config.value("metric", std::string())) return text;
  if (const double error = said.value("standard_error", 0.0); error > 0)
    text += fmt::format(" ± {:.1f} %", 100 * 1.96 * error);
  if (const double deviation = said.value("deviation", 0.0); deviation > 0)
    text += fmt::format(", ± {:.1f} % as stated", 100 * deviation);
  return text;
}

// The time of a step, or the time to the target.
std::string TimeText(const ImportedCell& cell) {
  if (cell.any->metrics.contains("seconds_to_target"))
    return ImportedValue(cell, "seconds_to_target") + " to target";
  return cell.any->metrics.contains("step_seconds")
             ? ImportedValue(cell, "step_seconds") + " a step"
             : kNone;
}

std::string SampleText(const ImportedCell& cell) {
  const std::size_t runs = cell.result.trials.size();
  const std::size_t steps = SaidOf(*cell.any).value("steps", std::size_t{0});
  if (runs > 1) return fmt::format("{} runs", runs);
  return steps > 0 ? fmt::format("{} steps", steps) : "1";
}

}  // namespace

std::string DoubtOf(const ImportedCell& cell) {
  std::string doubt = SaidOf(*cell.any).value("doubt", std::string());
  for (const TrialRow* other : cell.contradicting) {
    const auto& [metric, value] = *other->metrics.begin();
    doubt += fmt::format("{}another import, {}, has {} for it", doubt.empty() ? "" : "; ",
                         other->trial_id, Quantity(value, other->units.at(metric)));
  }
  return doubt;
}

Table ImportedTable(std::string title, std::span<const ImportedCell> cells) {
  Table table;
  table.title = std::move(title);
  table.caption = "imported: results of others, compared with nothing";
  table.columns = {"system", "method", "workload", "workers", "density",
                   "batch",  "value",  "time",     "n",       "source"};
  for (const ImportedCell& cell : cells) {
    const TrialRow& row = *cell.any;
    const json& config = row.config;
    const auto key = [&](const char* name) { return KeyText(config, {name, name}); };
    const std::string metric = config.value("metric", std::string());
    std::vector<std::string> words = {row.part,
                                      row.method,
                                      WorkloadLabel(row.workload),
                                      std::to_string(row.workers),
                                      key("density"),
                                      key("batch_per_worker"),
                                      ImportedValue(cell, metric),
                                      TimeText(cell),
                                      SampleText(cell),
                                      row.system.value("source", std::string())};
    if (const std::string doubt = DoubtOf(cell); !doubt.empty())
      words[6] += fmt::format(" [{}]", table.NoteOf(doubt));
    table.rows.push_back(std::move(words));
  }
  return table;
}

json ImportedJson(std::span<const ImportedCell> cells) {
  json results = json::array();
  for (const ImportedCell& cell : cells) {
    const TrialRow& row = *cell.any;
    json result = json::object();
    for (const char* key : {"method", "workers", "density", "sparsifier", "batch_per_worker",
                            "network_gbps", "target", "metric"})
      result[key] = row.config.value(key, json());
    result["workload"] = row.workload;
    result["system"] = row.part;
    result["source"] = row.system.value("source", json());
    result["stated"] = SaidOf(row).value("stated", json());
    result["doubt"] = DoubtOf(cell);
    result["n"] = cell.result.trials.size();
    result["metrics"] = json::object();
    for (const auto& [name, value] : row.metrics) {
      json interval = IntervalJson(cell.result.Average(std::string(name)));
      interval["unit"] = row.units.at(name);
      result["metrics"][std::string(name)] = std::move(interval);
    }
    result["trials"] = json::array();
    for (const auto& [block, trial] : cell.result.trials)
      result["trials"].push_back(
          {{"id", trial->trial_id}, {"block", block}, {"directory", trial->directory}});
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace sparfuse::harness

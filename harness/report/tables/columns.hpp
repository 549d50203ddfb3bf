// Chooses the columns of result tables: keys that tell cells apart, and metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// Configurations are JSON here: paths lead into their tables, and stored ones may have keys that
// this program does not know.

// A key of a configuration, or a way into its tables: "inputs.host", "recipe.learning_rate".
struct KeyColumn {
  std::string path;
  std::string title;
};

// The columns that, beside the method, tell the cells (or profile trials) of a table apart:
// workload and workers; of the usual keys (mode, link, density, ...) those in which the cells
// differ; then every other one in which cells differ that all of these leave alike.
// configs: JSON, since a column is a path of keys.
std::vector<KeyColumn> KeyColumnsOf(const std::vector<nlohmann::json>& configs);
std::vector<KeyColumn> KeyColumnsOf(const Part& part);

// What `config` has of a column; null where it has nothing.
nlohmann::json KeyValue(const nlohmann::json& config, const KeyColumn& column);

// The same for people: "1 Gbit/s", kNone for nothing.
std::string KeyText(const nlohmann::json& config, const KeyColumn& column);

// `key = value` in the words of a sentence: "2 workers", "density 0.01", "emulated".
std::string KeyWords(const std::string& key, const nlohmann::json& value);

struct MetricColumn {
  const char* metric;
  const char* title;
  bool interval = false;           // tables show how well the value is known
  const char* ratio = nullptr;     // "vs": heads the column of ratios to the reference
  const char* share_of = nullptr;  // a metric: tables show how much of it this is
  bool of_target = false;          // tables show how many blocks reached the target
  bool rare = false;               // tables lack it where no cell has it
};
std::span<const MetricColumn> MetricColumnsOf(const Part& part);
// These, then each other metric of `named` that trials store (catalog/metrics.hpp), headed by its
// name.
std::vector<MetricColumn> MetricColumnsOf(const Part& part, std::span<const std::string> named);

// The base unit of a metric: "s", "B" or "1".
std::string UnitOf(std::string_view metric);
// The same, but of throughput what the workload of `config` counts: "images/s".
std::string UnitOf(std::string_view metric, const nlohmann::json& config, const Catalog& catalog);
// The same of a cell with results, whose trials say what an evaluation is in: "accuracy".
std::string UnitOf(std::string_view metric, const CellResult& cell, const Catalog& catalog);

}  // namespace sparfuse::harness

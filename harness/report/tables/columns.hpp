// Chooses the columns of result tables: keys in which cells differ, and metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// Configurations are JSON here, because paths lead into their tables, and stored ones may have keys
// that this program does not know.

// A key of a configuration, or a way into its tables: "inputs.host", "recipe.learning_rate".
struct KeyColumn {
  std::string path;
  std::string title;
};

// The columns that, together with the method, distinguish the cells (or profile trials) of a table.
// They are workload and workers; the usual keys (mode, link, density, ...) in which the cells
// differ; then every other key that distinguishes cells which agree in all of these.
// configs: JSON, because a column is a path of keys.
std::vector<KeyColumn> KeyColumnsOf(const std::vector<nlohmann::json>& configs);
std::vector<KeyColumn> KeyColumnsOf(const Part& part);

// The value of `config` in a column; null if it has none.
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
  bool rare = false;               // tables lack it if no cell has it
  bool uncounted_at_zero = false;  // tables show no number for 0
};
std::span<const MetricColumn> MetricColumnsOf(const Part& part);
// These, then each other metric of `named` that trials store (catalog/metrics.hpp), headed by its
// name.
std::vector<MetricColumn> MetricColumnsOf(const Part& part, std::span<const std::string> named);

// The base unit of a metric: "s", "B" or "1".
std::string UnitOf(std::string_view metric);
// As above; the unit of throughput is that of the workload of `config`: "images/s".
std::string UnitOf(std::string_view metric, const nlohmann::json& config, const Catalog& catalog);
// As above, of a cell with results; its trials give the unit of an evaluation: "accuracy".
std::string UnitOf(std::string_view metric, const CellResult& cell, const Catalog& catalog);

}  // namespace sparfuse::harness

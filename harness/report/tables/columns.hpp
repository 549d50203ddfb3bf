// Chooses the columns of result tables: keys that tell cells apart, and metrics.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/experiment/experiment.hpp"

namespace sparfuse::harness {

// A key of a configuration, or a way into its tables: "inputs.host", "recipe.learning_rate".
struct KeyColumn {
  std::string path;
  std::string title;
};

// The columns that, beside the method, tell the cells (or profile trials) of a table apart:
// workload and workers; of the usual keys (mode, link, density, ...) those in which the cells
// differ; then every other one in which cells differ that all of these leave alike.
std::vector<KeyColumn> KeyColumnsOf(const std::vector<nlohmann::json>& configs);
std::vector<KeyColumn> KeyColumnsOf(const Part& part);

// What a table shows where it has nothing.
inline constexpr const char* kNone = "–";

// What `config` has of a column; null where it has nothing.
nlohmann::json KeyValue(const nlohmann::json& config, const KeyColumn& column);

// The same for people: "1 Gbit/s", kNone for nothing.
std::string KeyText(const nlohmann::json& config, const KeyColumn& column);

struct MetricColumn {
  const char* metric;
  const char* title;
  bool interval;  // tables show how well the value is known
};
std::span<const MetricColumn> MetricColumnsOf(const Part& part);

// The base unit of a metric: "s", "B" or "1".
std::string UnitOf(std::string_view metric);
// The same, but of throughput what the workload of `config` counts: "images/s".
std::string UnitOf(std::string_view metric, const nlohmann::json& config, const Catalog& catalog);

}  // namespace sparfuse::harness

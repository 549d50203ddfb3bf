// Writes the cells of a part as JSON: their configuration, trials and numbers.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "harness/report/results.hpp"

namespace sparfuse::harness {

// {value, low, high, n}; low and high are null where one block leaves no interval.
nlohmann::json IntervalJson(const std::optional<Interval>& interval);

// The cells of results[part], each: config with every key, config_hash, dense, trials [{id, block,
// directory}], metrics {name: {unit, values {block: value}, average, geometric}}, reference, ratios
// {method: {cell, metrics {name: interval with values}}}, points, failure, oversubscribed,
// hardware, sources, set_aside.
//
// `ratios` are those to the part's reference and to the methods that its figures divide by, of the
// metrics that these show. `points` are the live cells, as [part, cell], that equal a modelled cell
// in all but how they are launched, of parts that draw a scaling. Where a figure shows the rate of
// missing tensors, outcome.json files beneath `folder`, the results folder, are read for it.
nlohmann::json CellsJson(const std::vector<PartResult>& results, std::size_t part,
                         const std::filesystem::path& folder);

}  // namespace sparfuse::harness

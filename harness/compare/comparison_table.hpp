// Lays out a comparison of machines: for people, and as numbers for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

inline constexpr std::size_t kShortHash = 12;  // characters of a configuration's hash, in tables

// The requests to the model, and the profile of each side; "" if none was needed.
struct ModelRequest {
  bool transport = false;
  std::string with_plan;              // the side whose plans are forced, or ""
  std::vector<std::string> profiles;  // "profile trials of a"
};

// A comparison as it is shown.
struct ShownComparison {
  const SystemComparison& comparison;
  const std::vector<SystemSide>& sides;
  const CompareRequest& request;
  ModelRequest asked = {};
};

// "12 ratios: 5 agree within 5 %, 2 larger on a, 5 undecided", a sentence for each side but the
// first.
std::vector<std::string> SummaryOf(const ShownComparison& shown);

// The sides and their differences. Then for each part its regimes, its ratios with verdicts, and
// last the absolute values.
std::vector<Table> TablesOf(const ShownComparison& shown);

// The settings of a part with their differences, for pages.
Table RegimeTable(const ShownComparison& shown, const ComparedPart& part);
Table DifferenceTable(const ShownComparison& shown);

// A line, or object, a cell and side after the first: ratios of both with their intervals, the
// first's over the other's, verdict, blocks needed, and why not.
std::string ComparisonCsv(const ShownComparison& shown);
// The same for --json and for sites.
nlohmann::json ComparisonJson(const ShownComparison& shown);

// A table with the columns that tell a part's cells apart.
struct CellTable {
  Table table;
  std::vector<KeyColumn> keys;

  CellTable(const ComparedPart& part, std::string title);
  // The cell's values in these columns.
  std::vector<std::string> RowOf(const ComparedCell& cell) const;
};

// The model's part of these (modelled/modelled_tables.cpp).

// Of a part, if transport or a plan was asked for.
std::vector<Table> ModelledTables(const ShownComparison& shown, const ComparedPart& part);

// "a carried over to b by the model: 5 ratios, 4 leave a residual whose interval contains 1, ...".
// For plans: how many differ, cannot be forced, and were measured.
std::vector<std::string> ModelledSummary(const ShownComparison& shown);

// {"lacks", "model_first", "model_second", "ratio", "residual"}, all of mode "modelled"; null if
// it was not asked for.
nlohmann::json TransportedJson(const ComparedCell& cell, std::size_t side);
// {"plan_of", "own", "units", "config", "lacks", "modelled", "measured", "gain", "rest", ...}; null
// if it was not asked for.
nlohmann::json ForcedJson(const ComparedCell& cell, std::size_t side, const ModelRequest& asked);

}  // namespace sparfuse::harness

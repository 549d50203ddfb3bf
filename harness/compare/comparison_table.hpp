// Lays out a comparison of machines: for people, and as numbers for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

inline constexpr std::size_t kShortHash = 12;  // characters of a configuration's hash, in tables

// The requests to the model, and the profile of each side; "" if none was needed.
struct ModelRequest {
  bool transport = false;
  std::string with_plan;              // the side whose plans are forced, or ""
  std::vector<std::string> profiles;  // "profile trials of a"
};

// "12 ratios: 5 agree within 5 %, 2 larger on a, 5 undecided", a sentence for each side but the
// first.
std::vector<std::string> SummaryOf(const SystemComparison& comparison,
                                   const std::vector<SystemSide>& sides,
                                   const CompareRequest& request, const ModelRequest& asked = {});

// The sides and their differences. Then for each part its regimes, its ratios with verdicts, and
// last the absolute values.
std::vector<Table> TablesOf(const SystemComparison& comparison,
                            const std::vector<SystemSide>& sides, const CompareRequest& request,
                            const ModelRequest& asked = {});

// The settings of a part with their differences, for pages.
Table RegimeTable(const ComparedPart& part, const std::vector<SystemSide>& sides,
                  const CompareRequest& request);
Table DifferenceTable(const SystemComparison& comparison, const std::vector<SystemSide>& sides);

// A line, or object, a cell and side after the first: ratios of both with their intervals, the
// first's over the other's, verdict, blocks needed, and why not.
std::string ComparisonCsv(const SystemComparison& comparison, const std::vector<SystemSide>& sides,
                          const CompareRequest& request, const ModelRequest& asked = {});
// The same for --json and for sites.
nlohmann::json ComparisonJson(const SystemComparison& comparison,
                              const std::vector<SystemSide>& sides, const CompareRequest& request,
                              const ModelRequest& asked = {});

// The model's part of these (modelled/modelled_tables.cpp).

// Of a part, if transport or a plan was asked for.
std::vector<Table> ModelledTables(const ComparedPart& part, const std::vector<SystemSide>& sides,
                                  const CompareRequest& request, const ModelRequest& asked);

// "a carried over to b by the model: 5 ratios, 4 leave a residual whose interval contains 1, ...".
// For plans: how many differ, cannot be forced, and were measured.
std::vector<std::string> ModelledSummary(const SystemComparison& comparison,
                                         const std::vector<SystemSide>& sides,
                                         const ModelRequest& asked);

// {"lacks", "model_first", "model_second", "ratio", "residual"}, all of mode "modelled"; null if
// it was not asked for.
nlohmann::json TransportedJson(const ComparedCell& cell, std::size_t side);
// {"plan_of", "own", "units", "config", "lacks", "modelled", "measured", "gain", "rest", ...}; null
// if it was not asked for.
nlohmann::json ForcedJson(const ComparedCell& cell, std::size_t side, const ModelRequest& asked);

}  // namespace sparfuse::harness

// Lays out what the model says beside a comparison: tables for people, objects for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

// What was asked of the model, and with which profiles, by side; "" where none was needed.
struct ModelRequest {
  bool transport = false;
  std::string with_plan;              // the side whose plans are forced, or ""
  std::vector<std::string> profiles;  // "profile trials of a"
};

// Of a part, where transport or a plan was asked for.
std::vector<Table> ModelledTables(const ComparedPart& part, const std::vector<SystemSide>& sides,
                                  const CompareRequest& request, const ModelRequest& asked);

// "a carried over to b by the model: 5 ratios, 4 leave a residual whose interval contains 1, ...";
// of plans: how many differ, cannot be forced, were measured.
std::vector<std::string> ModelledSummary(const SystemComparison& comparison,
                                         const std::vector<SystemSide>& sides,
                                         const ModelRequest& asked);

// {"lacks", "model_first", "model_second", "ratio", "residual"}, all of mode "modelled"; null where
// it was not asked for.
nlohmann::json TransportedJson(const ComparedCell& cell, std::size_t side);
// {"plan_of", "own", "units", "config", "lacks", "modelled", "measured", "gain", "rest", ...}; null
// where it was not asked for.
nlohmann::json ForcedJson(const ComparedCell& cell, std::size_t side, const ModelRequest& asked);

}  // namespace sparfuse::harness

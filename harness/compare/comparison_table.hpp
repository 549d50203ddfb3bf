// Lays out a comparison of machines: for people, and as numbers for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/compare/comparison.hpp"
#include "harness/compare/modelled/modelled_tables.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

// "12 ratios: 5 agree within 5 %, 2 larger on a, 5 undecided", a sentence for each side but the
// first.
std::vector<std::string> SummaryOf(const SystemComparison& comparison,
                                   const std::vector<SystemSide>& sides,
                                   const CompareRequest& request, const ModelRequest& asked = {});

// The sides and what is not the same on them; then for each part its regimes, and its ratios with
// verdicts, absolute values last.
std::vector<Table> TablesOf(const SystemComparison& comparison,
                            const std::vector<SystemSide>& sides, const CompareRequest& request,
                            const ModelRequest& asked = {});

// A line, or object, a cell and side after the first: ratios of both with their intervals, the
// first's over the other's, verdict, blocks needed, and why not.
std::string ComparisonCsv(const SystemComparison& comparison, const std::vector<SystemSide>& sides,
                          const CompareRequest& request, const ModelRequest& asked = {});
nlohmann::json ComparisonJson(const SystemComparison& comparison,
                              const std::vector<SystemSide>& sides, const CompareRequest& request,
                              const ModelRequest& asked = {});

}  // namespace sparfuse::harness

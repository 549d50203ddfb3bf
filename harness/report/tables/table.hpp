// Lays out an experiment's results as tables of text, for people; records.hpp has the numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/records/profile.hpp"
#include "harness/report/prediction.hpp"
#include "harness/report/results.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// A row has the keys that distinguish its cell (columns.hpp); excluded cells show en dashes, with
// their reason below. named: metrics that have a column in any case.
Table ResultTable(const PartResult& result, const Catalog& catalog,
                  std::span<const std::string> named = {});
Table ClaimTable(const PartResult& result);
Table PredictionTable(const Part& part, const PredictionSummary& summary);
// Results of others, compared with nothing.
Table ImportedTable(std::string title, std::span<const ImportedCell> cells);
// The same for figures and programs: [{method, workload, workers, density, sparsifier,
// batch_per_worker, network_gbps, target, system, source, stated, doubt, n, metrics: {name: {unit,
// value, low, high}}, trials: [{id, block, directory}]}]
nlohmann::json ImportedJson(std::span<const ImportedCell> cells);
// Tables of passes, slowest tensors, kernels and links. `outcomes` are as in a file of
// results/profiles (docs/profiles-and-clusters.md). Intervals are 95 %.
std::vector<Table> ProfileTables(const ProfileOutcomes& outcomes);

// The reason of the import's doubt in the number, and the value of other imports instead; "" if
// there is no doubt.
std::string DoubtOf(const ImportedCell& cell);

// A claim in the words of tables and reports.
struct ClaimWords {
  std::string expected;  // "1.874x", "difference > 0"
  std::string ours;      // "1.31x [1.27, 1.35]"
  std::string verdict;   // "holds, preliminary"
};
ClaimWords WordsOf(const ClaimResult& judged);
const char* ComparisonSign(Comparison comparison);  // "<="

}  // namespace sparfuse::harness

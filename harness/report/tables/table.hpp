// Lays out an experiment's results as tables of text, for people, and lists them as numbers in base
// units, for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/profile.hpp"
#include "harness/report/results.hpp"
#include "harness/report/tables/columns.hpp"
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

// A quantity of a cell or of two, or why there is none.
struct ResultRecord {
  // "result", "ratio" (to the part's reference), "claimed value", "claimed ratio", "claimed
  // difference", "prediction" (of a live cell), "prediction error" (relative), "excluded" or
  // "imported", of others
  std::string_view what;
  std::string part;
  // The keys that distinguish the part's cells, the method first.
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  std::string metric, unit;  // "seconds", "bytes", "images/s"; "" for a pure number
  std::string over;          // of a ratio or difference: a method, or the other cell's keys
  std::optional<Interval> value;
  std::size_t n = 0;  // blocks
  std::string mode;
  std::string quote, verdict;      // of claims
  std::string relation;            // of claims: "=", "<", ...
  std::optional<double> expected;  // of claims: the other side of the relation
  std::string hardware;            // of the trials of the part
  std::string note;                // why there is no number; "oversubscribed"
};

// `parts` (each followed by its twins if it is predicted) and `results` are in the same order.
std::vector<ResultRecord> RecordsOf(const std::vector<Part>& parts,
                                    const std::vector<PartResult>& results, const Catalog& catalog);

// One CSV table: what, part, the keys of all parts, metric, unit, over, value, low, high, n, mode,
// relation, expected, verdict, quote, hardware, note. A field without a value is empty.
std::string RecordsCsv(const std::vector<ResultRecord>& records);

// The same as a list of flat objects, null for nothing; each has the keys of its own part alone.
nlohmann::json RecordsJson(const std::vector<ResultRecord>& records);

}  // namespace sparfuse::harness

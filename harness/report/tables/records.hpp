// Lists an experiment's results as numbers in base units, for programs; tables list them for
// people.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/results.hpp"
#include "harness/report/tables/columns.hpp"

namespace sparfuse::harness {

// A quantity of a cell or of two, or why there is none.
struct ResultRecord {
  // "result", "ratio" (to the part's reference), "claimed value", "claimed ratio", "claimed
  // difference", "prediction" (of a live cell), "prediction error" (relative), "excluded" or
  // "imported", of others
  std::string_view what;
  std::string part;
  // That tell the cells of the part apart, the method first. JSON: other keys in each part.
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  std::string metric, unit;  // "seconds", "bytes", "images/s"; "" for a pure number
  std::string over;          // of a ratio or difference: a method, or the other cell's keys
  std::optional<Interval> value;
  std::size_t n = 0;  // blocks
  std::string mode;
  std::string quote, verdict;      // of claims
  std::string relation;            // of claims: "=", "<", ...
  std::optional<double> expected;  // of claims: what `value` has this relation to
  std::string hardware;            // of the trials of the part
  std::string note;                // why there is no number; "oversubscribed"
};

// `parts` (each followed by its twins where it is predicted) and `results` are in the same order.
std::vector<ResultRecord> RecordsOf(const std::vector<Part>& parts,
                                    const std::vector<PartResult>& results, const Catalog& catalog);

// One CSV table: what, part, the keys of all parts, metric, unit, over, value, low, high, n, mode,
// relation, expected, verdict, quote, hardware, note. A field without a value is empty.
std::string RecordsCsv(const std::vector<ResultRecord>& records);

// The same as a list of flat objects, null for nothing; each has the keys of its own part alone.
nlohmann::json RecordsJson(const std::vector<ResultRecord>& records);

}  // namespace sparfuse::harness

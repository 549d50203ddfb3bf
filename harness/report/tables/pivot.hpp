// Lays out an experiment's results as a paper does: axes of the experiment along rows and columns,
// columns of its result table as the values between.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/results.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

// Axes are keys of cells by name or path, as tables head them: "method", "workers", "link",
// "recipe.learning_rate". Values are columns of the result table, by heading or metric:
// "throughput", "step_seconds", "vs", "n"; or any other metric that trials store:
// "compute_utilisation". None: the table's first.
struct PivotRequest {
  std::vector<std::string> rows, columns, values;
};

// A table for each part. Several values of a cell are in one field, separated by semicolons; kNone
// means that there is no cell. Throws Error{kConfig} for an axis or a value that no part has, and
// for two cells in one place, with the axis that distinguishes them.
std::vector<Table> PivotTables(const std::vector<PartResult>& results, const PivotRequest& request,
                               const Catalog& catalog);

// The rows of all parts as numbers in base units: part, the axes of rows, and for each setting of
// the columns' axes its values, by name. A missing number is null.
std::vector<nlohmann::ordered_json> PivotNumbers(const std::vector<PartResult>& results,
                                                 const PivotRequest& request,
                                                 const Catalog& catalog);

// The same rows in one comma-separated table. A field without a number is empty.
std::string PivotCsv(const std::vector<PartResult>& results, const PivotRequest& request,
                     const Catalog& catalog);

}  // namespace sparfuse::harness

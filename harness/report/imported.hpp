// Shows results of others beside ours, compared with nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/report/results.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

// All of `rows` that count, runs of one result together; by system, workload, method and workers.
std::vector<ImportedCell> ImportedCells(const std::vector<TrialRow>& rows);
// Imported cells of the part's workloads and kind; of a part of twins none.
std::vector<ImportedCell> ImportedBeside(const Part& part, const std::vector<TrialRow>& rows);

// Why the number cannot be, as the import found, and what other imports have in its place; "" of
// one without doubts.
std::string DoubtOf(const ImportedCell& cell);

Table ImportedTable(std::string title, std::span<const ImportedCell> cells);

// {"results": [{method, workload, workers, density, sparsifier, batch_per_worker, network_gbps,
// target, system, source, stated, doubt, n, metrics: {name: {unit, value, low, high}}, trials:
// [{id, block, directory}]}], "table": {columns, rows, notes}}
nlohmann::json ImportedJson(std::span<const ImportedCell> cells);

}  // namespace sparfuse::harness

// Makes rows of trials and results of a part, for tests of tables.
#pragma once

#include <vector>

#include "harness/catalog/revisions.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

inline TrialRow RowOf(const Catalog& catalog, const Cell& cell, int block, double step_seconds) {
  TrialRow row;
  row.config = cell.json;
  row.config_hash = cell.config_hash;
  row.revisions = nlohmann::json(RevisionsOf(catalog, cell.config));
  row.system = {
      {"cpu_model", "CPU"}, {"cores", 2}, {"memory_gib", 4}, {"gpus", nlohmann::json::array()}};
  row.system_hash = "machine";
  row.status = "ok";
  row.block = block;
  row.metrics = {{"throughput", 64 / step_seconds},
                 {"step_seconds", step_seconds},
                 {"exposed_communication_seconds", 0},
                 {"exchanges", 43},
                 {"sent_bytes", 2500000}};
  return row;
}

// `part` must outlive the result.
inline PartResult ResultOf(const Part& part, const Catalog& catalog,
                           const std::vector<TrialRow>& rows) {
  PartResult result = ResultsOf({part}, catalog, rows, "machine").front();
  result.part = &part;
  for (std::size_t i = 0; i < part.cells.size(); ++i) result.cells[i].cell = &part.cells[i];
  return result;
}

}  // namespace sparfuse::harness

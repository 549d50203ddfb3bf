#include "harness/compare/side.hpp"

#include <ranges>

#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

std::function<nlohmann::json(const TrialRow&)> OutcomesIn(const std::filesystem::path& results) {
  return [results](const TrialRow& row) {
    const std::filesystem::path file = results / row.directory / "outcome.json";
    return SomethingIsAt(file) ? nlohmann::json::parse(ReadFile(file), nullptr, false)
                               : nlohmann::json();
  };
}

std::map<CellKey, SideCell> CellsOf(const SystemSide& side, DisturbedTrials disturbed) {
  std::map<CellKey, SideCell> cells;
  for (const TrialRow& row : side.rows | std::views::reverse) {
    if (row.kind == "profile") continue;
    SideCell& cell = cells[{row.experiment, row.part, row.config_hash}];
    if (row.counts() && cell.newest == nullptr) cell.newest = &row;
  }
  for (const TrialRow& row : side.rows) {
    if (row.kind == "profile") continue;
    SideCell& cell = cells.at({row.experiment, row.part, row.config_hash});
    cell.result.disturbed_trials = disturbed;
    const bool current = cell.newest == nullptr ||
                         (row.revisions == cell.newest->revisions && RanAlike(row, *cell.newest));
    if (current) AddTrial(cell.result, row);
  }
  return cells;
}

}  // namespace sparfuse::harness

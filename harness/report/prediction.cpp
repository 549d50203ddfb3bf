#include "harness/report/prediction.hpp"

#include <algorithm>
#include <cmath>

namespace sparfuse::harness {
namespace {

// The median size of the cells' errors, by the model or by a formula; none without cells, or if one
// of them lacks the formula's time.
std::optional<double> MedianError(const std::vector<PredictedCell>& cells, bool oversubscribed,
                                  std::optional<double> PredictedCell::*formula = nullptr) {
  std::vector<double> errors;
  for (const auto& cell : cells) {
    if (cell.oversubscribed != oversubscribed) continue;
    const auto seconds = formula == nullptr ? std::optional(cell.predicted) : cell.*formula;
    if (!seconds) return std::nullopt;
    errors.push_back(std::abs(*seconds / cell.live.value - 1));
  }
  return errors.empty() ? std::nullopt : std::optional(Median(errors));
}

}  // namespace

PredictionSummary ComparePrediction(const PartResult& live, const PartResult& twins,
                                    const std::set<std::size_t>* shown) {
  PredictionSummary summary;
  std::size_t twin = 0;  // PredictedPart keeps the cells' order
  for (std::size_t i = 0; i < live.cells.size(); ++i) {
    const CellResult& result = live.cells[i];
    const CellConfig& config = result.cell->config;
    if (config.kind != TrialKind::kThroughput || config.modelled()) continue;
    const CellResult& predicted = twins.cells.at(twin++);
    if (shown != nullptr && !shown->contains(i)) continue;
    const auto seconds = result.Over("step_seconds");
    const auto model = predicted.Mean("step_seconds");
    if (!seconds || !model) continue;
    PredictedCell cell{result.cell, i, twin - 1, *seconds, *model, result.Oversubscribed(), {}, {}};
    const auto local = predicted.Mean("local_seconds"), wire = predicted.Mean("wire_seconds");
    if (local && wire) {
      cell.longest = std::max(*local, *wire);
      cell.sum = *local + *wire;
    }
    summary.cells.push_back(std::move(cell));
  }
  summary.median_error = MedianError(summary.cells, false);
  summary.oversubscribed_median_error = MedianError(summary.cells, true);
  summary.longest_median_error = MedianError(summary.cells, false, &PredictedCell::longest);
  summary.sum_median_error = MedianError(summary.cells, false, &PredictedCell::sum);
  for (std::size_t i = 0; i < summary.cells.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto& a = summary.cells[i];
      const auto& b = summary.cells[j];
      if (a.oversubscribed || b.oversubscribed ||
          live.settings[a.position] != live.settings[b.position]) {
        continue;
      }
      // A single block gives no interval that could overlap.
      if (!a.live.has_bounds() || !b.live.has_bounds()) continue;
      if (a.live.low <= b.live.high && b.live.low <= a.live.high) continue;
      ++summary.ordered_pairs;
      summary.agreeing_pairs += (a.live.value < b.live.value) == (a.predicted < b.predicted);
    }
  }
  return summary;
}

}  // namespace sparfuse::harness

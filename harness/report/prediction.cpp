#include "harness/report/prediction.hpp"

#include <cmath>

#include "harness/catalog/config_keys.hpp"
#include "harness/files/canonical.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Two cells of one setting differ in the method alone.
std::string Setting(const json& config) {
  json setting = config;
  for (const std::string& key : MethodKeys()) {
    setting.erase(key);
  }
  return CanonicalJson(setting);
}

std::optional<double> MedianError(const std::vector<PredictedCell>& cells, bool oversubscribed) {
  std::vector<double> errors;
  for (const auto& cell : cells) {
    if (cell.oversubscribed == oversubscribed) errors.push_back(std::abs(cell.error()));
  }
  if (errors.empty()) return std::nullopt;
  return Median(errors);
}

}  // namespace

PredictionSummary ComparePrediction(const PartResult& live, const PartResult& twins) {
  PredictionSummary summary;
  std::size_t twin = 0;
  for (const auto& result : live.cells) {
    const json& config = result.cell->json;
    if (config["kind"] != "throughput" || config["mode"] == "modelled") continue;
    const CellResult& predicted = twins.cells.at(twin++);  // PredictedPart keeps the order
    const auto seconds = result.Over("step_seconds");
    const auto model = predicted.Mean("step_seconds");
    if (!seconds || !model) continue;
    const int cores = result.trials.begin()->second->system.value("cores", 0);
    const int threads = config["workers"].get<int>() * config["threads_per_worker"].get<int>();
    summary.cells.push_back({result.cell, *seconds, *model, threads > cores});
  }
  summary.median_error = MedianError(summary.cells, false);
  summary.oversubscribed_median_error = MedianError(summary.cells, true);
  for (std::size_t i = 0; i < summary.cells.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto& a = summary.cells[i];
      const auto& b = summary.cells[j];
      if (a.oversubscribed || b.oversubscribed || Setting(a.cell->json) != Setting(b.cell->json)) {
        continue;
      }
      // One block has no interval that could overlap.
      if (!a.live.has_bounds() || !b.live.has_bounds()) continue;
      if (a.live.low <= b.live.high && b.live.low <= a.live.high) continue;
      ++summary.ordered_pairs;
      summary.agreeing_pairs += (a.live.value < b.live.value) == (a.predicted < b.predicted);
    }
  }
  return summary;
}

}  // namespace sparfuse::harness

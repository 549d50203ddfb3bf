#include "harness/run/plan/missing_controls.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kControl = "dense";

// The line that gives the part a control.
std::string LineFor(const Part& part) {
  for (const json& axis : part.axes) {
    if (!axis.contains("method") || !axis["method"].is_array()) continue;
    json methods = axis["method"];
    methods.insert(methods.begin(), kControl);
    return "method = " + methods.dump();
  }
  return fmt::format("method = {}",
                     json::array({kControl, part.cells.front().config.method}).dump());
}

}  // namespace

std::vector<std::string> MissingControls(const Experiment& experiment) {
  std::vector<std::string> warnings;
  for (const Part& part : experiment.parts) {
    const bool measures = std::ranges::any_of(part.cells, [](const Cell& cell) {
      const CellConfig& config = cell.config;
      return !config.modelled() && config.kind == TrialKind::kThroughput && config.workers > 1;
    });
    if (!measures || !part.reference.empty()) continue;
    warnings.push_back(fmt::format(
        "part {}: no cell is its reference: without a control in each block nothing tells a slow "
        "method from a disturbed hour, and `sparfuse compare` has no ratio; its [[axis]] with "
        "{} has one, or reference = \"METHOD\" names one of its methods",
        part.id, LineFor(part)));
  }
  return warnings;
}

}  // namespace sparfuse::harness

#include "harness/run/live/hosts/launch_nodes.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <ranges>

#include "core/base/error.hpp"
#include "harness/run/live/hosts/preflight.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/run/live/ship/shipping.hpp"

namespace sparfuse::harness {
namespace {

Preflight Ask(PreflightRequest& request, const RunOptions& options,
              const std::atomic<bool>& interrupted) {
  std::optional<Shipping> shipping;
  if (options.ship) {
    shipping.emplace(options.launch, Collect(options.worker, {}, {}), interrupted);
    request.worker = shipping->worker();
    request.environment = shipping->environment();
    request.shared = false;
  }
  return RunPreflight(request, interrupted);
}

}  // namespace

AskedNodes AskNodes(const RunOptions& options, const std::filesystem::path& results,
                    const std::atomic<bool>& interrupted) {
  AskedNodes asked;
  if (::access(options.worker.c_str(), X_OK) != 0) return asked;
  PreflightRequest request;
  request.method = options.launch;
  request.worker = options.worker;
  request.results = results;
  try {
    request.timeout_seconds = std::min(request.timeout_seconds, PhaseLimits::OfEnvironment().start);
    request.ranks = static_cast<int>(NodesOf(options.launch).size());
    const Preflight preflight = Ask(request, options, interrupted);
    if (interrupted) return asked;
    for (const Finding& finding : JudgePreflight(preflight, request)) {
      if (finding.level == Finding::Level::kError)
        asked.problems.push_back(finding.what + ": " + finding.message);
    }
    for (const HostFacts& rank : preflight.ranks) {
      if (rank.node) asked.nodes.push_back(*rank.node);
    }
    if (!preflight.failures.empty()) asked.nodes.clear();
  } catch (const Error&) {
    asked.nodes.clear();
  }
  return asked;
}

std::vector<Node> StoredNodes(const std::vector<TrialRow>& rows) {
  for (const TrialRow& row : rows | std::views::reverse) {
    if (row.system.Value().is_object() && row.system.contains("nodes"))
      return NodesIn(row.system["nodes"]);
  }
  return {};
}

}  // namespace sparfuse::harness

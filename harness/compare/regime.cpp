#include "harness/compare/regime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// A share of communication below which a step is its computation, whatever the share.
constexpr double kNothing = 0.02;

int HostsOf(const TrialRow& trial) {
  const json machine = trial.provenance.value("machine", json::object());
  if (!machine.is_object() || !machine.contains("placement")) return 0;
  const json& placement = machine["placement"];
  if (!placement.is_array()) return 0;
  std::set<std::string> hosts;
  for (const json& host : placement) hosts.insert(host.dump());
  return static_cast<int>(hosts.size());
}

}  // namespace

std::string Regime::links() const {
  if (hosts == 0 || ranks < 2) return "";
  if (hosts == 1) return "within a node";
  return hosts == ranks ? "between nodes" : "both";
}

Regime RegimeOf(const SideCell& reference) {
  Regime regime;
  const auto exposed = reference.result.Mean("exposed_communication_seconds");
  const auto step = reference.result.Mean("step_seconds");
  if (exposed && step && *step > *exposed) regime.communication = *exposed / (*step - *exposed);
  const std::vector<double> steps = OfBlocks(reference.result.Values("step_seconds"));
  if (steps.size() > 1) regime.drift = std::ranges::max(steps) / std::ranges::min(steps) - 1;
  if (reference.newest != nullptr) {
    regime.ranks = reference.newest->workers;
    regime.hosts = HostsOf(*reference.newest);
  }
  return regime;
}

std::string WhyOtherRegime(const Regime& first, const Regime& second) {
  const auto apart = [](double a, double b) {
    return std::max(a, b) > kOtherRegime * std::min(a, b);
  };
  if (first.links() != second.links() && !first.links().empty() && !second.links().empty()) {
    return fmt::format("ranks are linked {} and {}", first.links(), second.links());
  }
  if (first.hosts > 0 && second.hosts > 0 &&
      apart(first.ranks_per_host(), second.ranks_per_host())) {
    return fmt::format("{:g} and {:g} ranks a node", first.ranks_per_host(),
                       second.ranks_per_host());
  }
  if (first.communication && second.communication) {
    const double a = std::max(*first.communication, kNothing);
    const double b = std::max(*second.communication, kNothing);
    if (apart(a, b)) {
      return fmt::format(
          "the reference exposes communication of {:.3g} and {:.3g} times the rest of its step",
          *first.communication, *second.communication);
    }
  }
  return "";
}

}  // namespace sparfuse::harness

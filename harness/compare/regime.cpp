#include "harness/compare/regime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/compare/card_links.hpp"

namespace sparfuse::harness {
namespace {

// A share of communication below which a step is its computation, whatever the share.
constexpr double kNothing = 0.02;

// From the lower to the upper quartile, so that one round does not count; 0 for fewer than four.
double MovedWithin(std::vector<double> rounds) {
  constexpr std::size_t kLeast = 4;
  if (rounds.size() < kLeast) return 0;
  std::ranges::sort(rounds);
  const std::size_t quarter = rounds.size() / kLeast;
  return rounds[rounds.size() - 1 - quarter] / rounds[quarter] - 1;
}

std::map<int, double> MovedByBlock(const CellResult& reference) {
  std::map<int, double> moved;
  const std::map<int, double> steps = reference.Values("step_seconds");
  const double usual = steps.empty() ? 0 : Median(OfBlocks(steps));
  for (const auto& [block, seconds] : steps) {
    const double between = std::exp(std::abs(std::log(seconds / usual))) - 1;
    const double within = MovedWithin(reference.trials.at(block)->launch.rounds);
    if (steps.size() > 1 || within > 0) moved[block] = std::max(between, within);
  }
  return moved;
}

}  // namespace

std::string Regime::links() const {
  if (hosts == 0 || ranks < 2) return "";
  if (hosts == 1) return "within a node";
  return hosts == ranks ? "between nodes" : "both";
}

std::string Regime::LinkWords() const {
  if (card_links.empty()) return links();
  return links().empty() ? "cards " + card_links : links() + ", cards " + card_links;
}

Regime RegimeOf(const SideCell& reference) {
  Regime regime;
  const auto exposed = reference.result.Mean("exposed_communication_seconds");
  const auto step = reference.result.Mean("step_seconds");
  if (exposed && step && *step > *exposed) regime.communication = *exposed / (*step - *exposed);
  const std::vector<double> steps = OfBlocks(reference.result.Values("step_seconds"));
  if (steps.size() > 1) regime.drift = std::ranges::max(steps) / std::ranges::min(steps) - 1;
  regime.moved = MovedByBlock(reference.result);
  if (reference.newest != nullptr) {
    regime.ranks = reference.newest->workers;
    regime.hosts = HostsOf(*reference.newest);
    regime.card_links = CardLinksOf(*reference.newest);
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
  if (first.card_links != second.card_links && !first.card_links.empty() &&
      !second.card_links.empty()) {
    return fmt::format("cards reach each other {} and {}", first.card_links, second.card_links);
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

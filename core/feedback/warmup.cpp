#include "core/feedback/warmup.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

void RequireFraction(const std::string& what, double value) {
  SPARFUSE_REQUIRE(
      value > 0 && value <= 1,
      "density warm-up: " + what + " = " + std::to_string(value) + ": expected a number in (0, 1]");
}

}  // namespace

double WarmupDensity(std::size_t epoch, double density, const DensityWarmup& warmup) {
  RequireFraction("density", density);
  if (warmup.factor) RequireFraction("factor", *warmup.factor);
  if (!warmup.schedule.empty()) {
    SPARFUSE_REQUIRE(!warmup.factor, "density warm-up: factor and schedule exclude one another");
    SPARFUSE_REQUIRE(warmup.schedule.size() >= warmup.epochs,
                     "density warm-up: the schedule has " + std::to_string(warmup.schedule.size()) +
                         " densities; expected one for each of " + std::to_string(warmup.epochs) +
                         " epochs");
    for (std::size_t e = 0; e < warmup.schedule.size(); ++e) {
      RequireFraction("schedule[" + std::to_string(e) + "]", warmup.schedule[e]);
    }
  }
  if (epoch >= warmup.epochs) return density;
  if (!warmup.schedule.empty()) return warmup.schedule[epoch];
  const double factor =
      warmup.factor.value_or(std::pow(density, 1.0 / (static_cast<double>(warmup.epochs) + 1)));
  return std::max(std::pow(factor, static_cast<double>(epoch) + 1), density);
}

}  // namespace sparfuse

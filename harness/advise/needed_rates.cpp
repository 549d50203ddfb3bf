// Finds the network rate at which a method computes for a given share of its time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"
#include "harness/advise/advice.hpp"
#include "harness/catalog/trial_composition.hpp"

namespace sparfuse::harness {
namespace {

// Factors on the declared rate. No real network lies beyond them.
constexpr double kLowest = 1e-4, kHighest = 1e4;
constexpr double kClose = 0.01;

// The least x from kLowest to kHighest with utilisation(x) >= wanted, which must grow with x.
template <class Utilisation>
std::optional<double> LeastFor(double wanted, Utilisation utilisation) {
  if (utilisation(kHighest) < wanted) return std::nullopt;
  double low = std::log(kLowest), high = std::log(kHighest);
  while (high - low > kClose / 2) {
    const double middle = (low + high) / 2;
    (utilisation(std::exp(middle)) >= wanted ? high : low) = middle;
  }
  return std::exp(high);
}

SentInWindows SentBy(const CellConfig& cell, const StepModel& model) {
  const Composition method = Compose(cell);
  SentInWindows sent;
  sent.steps = cell.method_options.window_steps();
  sent.bytes = model.sent_bytes * sent.steps;
  sent.compute_seconds = model.compute_seconds;
  if (const auto local = method.local_steps()) sent.delay = static_cast<int>(local->delay);
  if (method.strategy->delays) sent.delay = 1;
  if (method.planner->name == kFragmentsPlanner)
    sent.exchanges = static_cast<int>(IntOption(method.planner_options, "fragments"));
  return sent;
}

}  // namespace

double RateOfBytes(const SentInWindows& sent, double utilisation) {
  const double compute = sent.steps * sent.compute_seconds / sent.exchanges;
  const double seconds = sent.delay * sent.compute_seconds + compute * (1 / utilisation - 1);
  return 8e-9 * sent.bytes / sent.exchanges / seconds;
}

std::vector<NeededRates> Adviser::Rates() {
  const std::string why = cluster_.WhyFixedBandwidth();
  if (!why.empty() || cluster_.declared() == nullptr) {
    SPARFUSE_THROW(kConfig, "--utilisation on cluster " + cluster_.name() +
                                ": its links have one rate each" + (why.empty() ? "" : ": " + why) +
                                "; expected a declared cluster, without --link");
  }
  const double declared = cluster_.declared()->Value("inter_node_gbps");
  const int workers = request_.workers.back();
  std::vector<std::optional<NeededRates>> found(asked_.size());
  std::mutex mutex;
  std::size_t done = 0;
  pool_.ParallelFor(asked_.size(), [&](std::size_t i, int) {
    try {
      const CellConfig cell = CellOf(asked_[i], workers, request_.densities.front());
      std::map<double, StepModel> modelled;  // bisections of one method begin alike
      const auto at = [&](double factor) -> const StepModel& {
        const auto known = modelled.find(factor);
        if (known != modelled.end()) return known->second;
        return modelled[factor] = ModelSteps(FirstTrial(cell), cluster_.Profiles(cell, 0, factor));
      };
      NeededRates rates{asked_[i], cell.method_options.window_steps(), {}, {}};
      const SentInWindows sent = SentBy(cell, at(1));
      for (const double wanted : kUtilisations) {
        const auto factor = LeastFor(wanted, [&](double x) { return at(x).utilisation; });
        rates.gbps.push_back(factor ? std::optional(declared * *factor) : std::nullopt);
        rates.naive_gbps.push_back(RateOfBytes(sent, wanted));
      }
      found[i] = std::move(rates);
    } catch (const Error&) {  // the ranking lists the method and the reason
    }
    const std::lock_guard lock(mutex);
    if (progress_) progress_("rates for utilisations", ++done, asked_.size());
  });
  std::vector<NeededRates> all;
  for (auto& each : found) {
    if (each) all.push_back(*std::move(each));
  }
  std::ranges::stable_sort(all, {}, [](const NeededRates& each) {
    return each.gbps.front().value_or(std::numeric_limits<double>::infinity());
  });
  return all;
}

}  // namespace sparfuse::harness

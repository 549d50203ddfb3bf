#include "baselines/omgs/omgs.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {
namespace {

// The open unit. Seconds since backward began.
struct OpenUnit {
  std::size_t elements = 0;
  double begin = 0;             // start of its backward on the lane
  double backward_seconds = 0;  // of all its tensors
};

constexpr std::string_view kOmgsName = "omgs";

class Omgs final : public Planner {
 public:
  explicit Omgs(OmgsFirstPair first_pair) : first_pair_(first_pair) {}

  Plan MakePlan(const PlanInput& input) const override {
    const MergedTimes times(input, kOmgsName);
    return PlanOfLengths(
        OmgsUnits(
            times.tensors(), [&](std::size_t elements) { return times.Select(elements); },
            [&](std::size_t elements) { return times.Exchange(elements); }, first_pair_),
        input);
  }

 private:
  OmgsFirstPair first_pair_;
};

}  // namespace

std::vector<std::size_t> OmgsUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                   const SecondsOfElements& exchange, OmgsFirstPair first_pair) {
  CheckReadyTensors(tensors, "OMGS-SGD");
  std::vector<std::size_t> units = {1};
  OpenUnit open{tensors.elements[0], 0, tensors.backward_seconds[0]};
  double link_free = 0;
  for (std::size_t t = 1; t < tensors.elements.size(); ++t) {
    const std::size_t next = tensors.elements[t];
    const std::size_t both = open.elements + next;
    const double selected = open.begin + open.backward_seconds + select(open.elements);
    const double sent = std::max(link_free, selected);
    const double waits = tensors.backward_seconds[t] + select(both) - select(open.elements) -
                         select(next) - (sent - selected);
    const double saves = exchange(open.elements) + exchange(next) - exchange(both);
    if (waits < saves && !(t == 1 && first_pair == OmgsFirstPair::kMerged)) {
      ++units.back();
      open.elements = both;
      open.backward_seconds += tensors.backward_seconds[t];
    } else {
      units.push_back(1);
      link_free = sent + exchange(open.elements);
      open = {next, selected, tensors.backward_seconds[t]};
    }
  }
  if (first_pair == OmgsFirstPair::kMerged && units.size() > 1) {
    units[1] += units[0];
    units.erase(units.begin());
  }
  return units;
}

double OmgsSelectionSeconds(double topk_seconds, std::size_t elements) {
  const auto x = static_cast<double>(elements);
  return topk_seconds * x * std::log2(x);
}

const PlannerDescriptor kOmgsPlanner = {
    .name = kOmgsName,
    .summary =
        "merges gradients if waiting for them and selecting from both together costs less than it "
        "saves",
    .source = "Shi et al., OMGS-SGD, INFOCOM 2020",
    .revision = 1,
    .options = {ChoiceOption(
        "solver", "paper", {"paper", "published"},
        "the algorithm of the paper, or of the published code, which always merges the first two "
        "tensors and decides about the others as if it had not")},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      return std::make_unique<Omgs>(StringOption(options, "solver") == "paper"
                                        ? OmgsFirstPair::kDecided
                                        : OmgsFirstPair::kMerged);
    },
    .needs_profile = [](const Options&) { return true; },
    .deviations =
        "Selections and exchanges are timed by the profile instead of by the paper's formulas. The "
        "copy of a gradient into its buffer counts as its backward.",
    .keeps_density = true};

}  // namespace sparfuse::baselines

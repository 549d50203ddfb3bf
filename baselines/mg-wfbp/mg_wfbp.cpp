#include "baselines/mg-wfbp/mg_wfbp.hpp"

#include <algorithm>
#include <vector>

#include "core/cost/fit.hpp"
#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

std::vector<std::size_t> MgWfbpUnits(const ReadyTensors& tensors, const AllReduceCost& cost) {
  CheckReadyTensors(tensors, "MG-WFBP");
  RequireSeconds("MG-WFBP", "alpha_seconds", cost.alpha_seconds);
  RequireSeconds("MG-WFBP", "seconds_per_byte", cost.seconds_per_byte);

  std::vector<std::size_t> units = {1};
  std::size_t elements = tensors.elements[0];  // of the open unit
  double ready = tensors.backward_seconds[0];
  double begin = ready;  // of the unit's all-reduce, if it were closed here
  for (std::size_t t = 1; t < tensors.elements.size(); ++t) {
    ready += tensors.backward_seconds[t];
    const double end = begin + cost.Seconds(elements);
    if (ready < end && (begin > ready || ready - begin < cost.alpha_seconds)) {
      ++units.back();
      elements += tensors.elements[t];
      begin = std::max(begin, ready);
    } else {
      units.push_back(1);
      elements = tensors.elements[t];
      begin = std::max(end, ready);
    }
  }
  return units;
}

namespace {

constexpr std::string_view kMgWfbpName = "mg-wfbp";
constexpr std::size_t kFittedSizes = 63;
constexpr std::size_t kElementsPerSize = 8192;

// Fits a line, because an exchange of no elements takes no rounds and shows no start-up time.
AllReduceCost Fit(const MergedTimes& times) {
  std::vector<TimedTransfer> points;
  for (std::size_t size = 1; size <= kFittedSizes; ++size) {
    const std::size_t elements = kElementsPerSize * size;
    points.push_back({static_cast<double>(sizeof(float) * elements), times.Exchange(elements)});
  }
  const AlphaBeta fit = FitAlphaBeta(points);
  return {std::max(0.0, fit.alpha_seconds), std::max(0.0, fit.seconds_per_byte)};
}

class MgWfbp final : public Planner {
 public:
  Plan MakePlan(const PlanInput& input) const override {
    const MergedTimes times(input, kMgWfbpName);
    const bool sends = input.topology.ranks > 1;  // a single rank's exchange may take no time
    return PlanOfLengths(MgWfbpUnits(times.tensors(), sends ? Fit(times) : AllReduceCost{}), input);
  }
};

}  // namespace

const PlannerDescriptor kMgWfbpPlanner = {
    .name = kMgWfbpName,
    .summary = "merges gradients if waiting for them costs less than a message's start-up time",
    .source = "Shi, Chu and Li, MG-WFBP, INFOCOM 2019",
    .revision = 1,
    .options = {},
    .make = [](const Options&) -> std::unique_ptr<Planner> { return std::make_unique<MgWfbp>(); },
    .needs_profile = [](const Options&) { return true; },
    .deviations =
        "Start-up time and time of a byte are fitted to the profile's exchanges by their relative "
        "errors; the published code fits absolute errors, or takes both times from a table. The "
        "copy of a gradient "
        "into its buffer counts as its backward.",
    .keeps_density = true};

}  // namespace sparfuse::baselines

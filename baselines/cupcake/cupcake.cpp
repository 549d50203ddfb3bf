#include "baselines/cupcake/cupcake.hpp"

#include <algorithm>
#include <vector>

#include "core/fusion/plan_times.hpp"

namespace sparfuse::baselines {

std::vector<std::size_t> CupcakeUnits(const ReadyTensors& tensors, const SecondsOfElements& select,
                                      const SecondsOfElements& exchange,
                                      CupcakeSelection selection) {
  CheckReadyTensors(tensors, "Cupcake");
  const std::size_t count = tensors.elements.size();
  std::size_t all_elements = 0;
  double all_ready = 0;
  for (std::size_t t = 0; t < count; ++t) {
    all_elements += tensors.elements[t];
    all_ready += tensors.backward_seconds[t];
  }
  double earliest = all_ready + select(all_elements) + exchange(all_elements);
  std::vector<std::size_t> units = {count};

  std::size_t elements = 0;  // of the first unit
  double ready = 0;
  for (std::size_t boundary = 1; boundary < count; ++boundary) {
    elements += tensors.elements[boundary - 1];
    ready += tensors.backward_seconds[boundary - 1];
    const std::size_t others = all_elements - elements;
    const double selected = ready + select(elements);
    const double all_backward =
        selection == CupcakeSelection::kBesideBackward ? all_ready : selected + (all_ready - ready);
    const double all_selected = std::max(selected, all_backward) + select(others);
    const double end = std::max(selected + exchange(elements), all_selected) + exchange(others);
    if (end < earliest) {
      earliest = end;
      units = {boundary, count - boundary};
    }
  }
  return units;
}

std::vector<std::size_t> CupcakeUnitsByCount(std::size_t tensors) {
  if (tensors == 1) return {1};
  return {tensors / 2, tensors - tensors / 2};
}

namespace {

constexpr std::string_view kCupcakeName = "cupcake";

bool IsTimed(const Options& resolved) { return StringOption(resolved, "boundary") == "times"; }

Lane LaneOf(const Options& resolved) {
  return StringOption(resolved, "lane") == "side" ? Lane::kSide : Lane::kCompute;
}

class Cupcake final : public Planner {
 public:
  Cupcake(bool timed, Lane lane) : timed_(timed), lane_(lane) {}

  Plan MakePlan(const PlanInput& input) const override {
    const bool possible = input.cost == nullptr || !input.cost->selects_in_hooks;
    const bool beside = lane_ == Lane::kSide && input.sparsified == Sparsified::kBehind && possible;
    Plan plan = PlanOfLengths(
        timed_ ? TimedUnits(input, beside) : CupcakeUnitsByCount(input.layout.tensors()), input);
    for (Unit& unit : plan.units) unit.lane = beside ? Lane::kSide : Lane::kCompute;
    return plan;
  }

 private:
  static std::vector<std::size_t> TimedUnits(const PlanInput& input, bool beside) {
    const MergedTimes times(input, kCupcakeName);
    const Lane lane = beside ? Lane::kSide : Lane::kCompute;
    return CupcakeUnits(
        times.tensors(), [&](std::size_t elements) { return times.Select(elements, lane); },
        [&](std::size_t elements) { return times.Exchange(elements); },
        beside ? CupcakeSelection::kBesideBackward : CupcakeSelection::kWithinBackward);
  }

  bool timed_;
  Lane lane_;
};

}  // namespace

const PlannerDescriptor kCupcakePlanner = {
    .name = kCupcakeName,
    .summary = "one unit, or two units with the boundary for which everything is sent earliest",
    .source = "Wang et al., Cupcake, MLSys 2023",
    .revision = 2,
    .options = {ChoiceOption("boundary", "times", {"times", "count"},
                             "start of the second unit: by the profile's times, or after half of "
                             "the tensors, as shipped"),
                ChoiceOption("lane", "side", {"side", "compute"},
                             "lane on which units are sparsified: beside backward, as published, "
                             "or on backward's lane")},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      return std::make_unique<Cupcake>(IsTimed(options), LaneOf(options));
    },
    .needs_profile = &IsTimed,
    .deviations =
        "Every boundary is tried with the profile's times; the paper bisects, and its code "
        "measures iterations. There are no more than two units.",
    .keeps_density = true};

}  // namespace sparfuse::baselines

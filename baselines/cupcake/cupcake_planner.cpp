#include "baselines/cupcake/cupcake_planner.hpp"

#include <string>
#include <vector>

#include "baselines/cupcake/cupcake_solver.hpp"
#include "core/fusion/merged_times.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kName = "cupcake";

bool IsTimed(const Options& resolved) { return StringOption(resolved, "boundary") == "times"; }

Lane LaneOf(const Options& resolved) {
  return StringOption(resolved, "lane") == "side" ? Lane::kSide : Lane::kCompute;
}

class Cupcake final : public Planner {
 public:
  Cupcake(bool timed, Lane lane) : timed_(timed), lane_(lane) {}
  std::string_view name() const noexcept override { return kName; }

  Plan MakePlan(const PlanInput& input) const override {
    const bool beside = lane_ == Lane::kSide && input.sparsified == Sparsified::kBehind;
    Plan plan = PlanOfLengths(
        timed_ ? TimedUnits(input, beside) : CupcakeUnitsByCount(input.layout.tensors()), input);
    for (Unit& unit : plan.units) unit.lane = beside ? Lane::kSide : Lane::kCompute;
    return plan;
  }

 private:
  static std::vector<std::size_t> TimedUnits(const PlanInput& input, bool beside) {
    const MergedTimes times(input, kName);
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
    .name = kName,
    .summary = "one unit, or two with the boundary by which all is sent earliest",
    .source = "Wang et al., Cupcake, MLSys 2023",
    .revision = 2,
    .options = {{"boundary",
                 std::string("times"),
                 0,
                 0,
                 {"times", "count"},
                 "where the second unit begins: by the profile's times, or behind half of the "
                 "tensors, as shipped"},
                {"lane",
                 std::string("side"),
                 0,
                 0,
                 {"side", "compute"},
                 "where units are selected from: beside backward, as published, or on its lane"}},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      return std::make_unique<Cupcake>(IsTimed(options), LaneOf(options));
    },
    .needs_profile = &IsTimed,
    .deviations =
        "Every boundary is tried with the profile's times, where the paper bisects and its code "
        "measures iterations. There are no more than two units."};

}  // namespace sparfuse::baselines

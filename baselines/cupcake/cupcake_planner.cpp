#include "baselines/cupcake/cupcake_planner.hpp"

#include <string>
#include <vector>

#include "baselines/cupcake/cupcake_solver.hpp"
#include "core/fusion/merged_times.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kName = "cupcake";

bool IsTimed(const Options& resolved) { return StringOption(resolved, "boundary") == "times"; }

class Cupcake final : public Planner {
 public:
  explicit Cupcake(bool timed) : timed_(timed) {}
  std::string_view name() const noexcept override { return kName; }

  Plan MakePlan(const PlanInput& input) const override {
    if (!timed_) return PlanOfLengths(CupcakeUnitsByCount(input.layout.tensors()), input);
    const MergedTimes times(input, kName);
    return PlanOfLengths(
        CupcakeUnits(
            times.tensors(), [&](std::size_t elements) { return times.Select(elements); },
            [&](std::size_t elements) { return times.Exchange(elements); },
            CupcakeSelection::kWithinBackward),
        input);
  }

 private:
  bool timed_;
};

}  // namespace

const PlannerDescriptor kCupcakePlanner = {
    .name = kName,
    .summary = "one unit, or two with the boundary that adds least to backward",
    .source = "Wang et al., Cupcake, MLSys 2023",
    .revision = 1,
    .options = {{"boundary",
                 std::string("times"),
                 0,
                 0,
                 {"times", "count"},
                 "where the second unit begins: by the profile's times, or behind half of the "
                 "tensors, as shipped"}},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      return std::make_unique<Cupcake>(IsTimed(options));
    },
    .needs_profile = &IsTimed,
    .deviations =
        "Every boundary is tried with the profile's times, where the paper bisects and its code "
        "measures iterations. There are no more than two units."};

}  // namespace sparfuse::baselines

#include "baselines/omgs/omgs_planner.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "baselines/omgs/omgs_solver.hpp"
#include "core/fusion/merged_times.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kName = "omgs";

class Omgs final : public Planner {
 public:
  explicit Omgs(OmgsFirstPair first_pair) : first_pair_(first_pair) {}
  std::string_view name() const noexcept override { return kName; }

  Plan MakePlan(const PlanInput& input) const override {
    const MergedTimes times(input, kName);
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

const PlannerDescriptor kOmgsPlanner = {
    .name = kName,
    .summary = "merges gradients where waiting and selecting together cost less than is saved",
    .source = "Shi et al., OMGS-SGD, INFOCOM 2020",
    .revision = 1,
    .options = {{"solver",
                 std::string("paper"),
                 0,
                 0,
                 {"paper", "published"},
                 "the paper's algorithm, or the published code's, which merges the first two "
                 "tensors in any case and decides about others as if it had not"}},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      return std::make_unique<Omgs>(StringOption(options, "solver") == "paper"
                                        ? OmgsFirstPair::kDecided
                                        : OmgsFirstPair::kMerged);
    },
    .needs_profile = [](const Options&) { return true; },
    .deviations =
        "Selections and exchanges are timed by the profile instead of by the paper's formulas. The "
        "copy of a gradient into its buffer counts as its backward."};

}  // namespace sparfuse::baselines

// Plans selective sparsification: units have equally many tensors, and small tensors stay dense
// because selecting from them costs more than it saves. SSFusion and ADTopk share it; their
// published planners are one file.
//
// Below, `sizes` are the elements of a unit's tensors that may be sparsified, in ready order. A cut
// leaves the tensors of at most `cut` elements dense.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/fusion/plan.hpp"

namespace sparfuse {

// Throws Error{kConfig} naming `planner` unless the strategy sparsifies ahead: no other strategy
// selects tensor by tensor.
void RequireAhead(const PlanInput& input, std::string_view planner);

// Units of max(1, trunc(L / buffers)) tensors, or of `tensors_per_unit` unless that is 0; the last
// unit takes the rest. With 20 buffers there are usually more than 20 units.
std::vector<Unit> UnitsOfEqualCount(const PlanInput& input, std::size_t buffers,
                                    std::size_t tensors_per_unit);
// The same by the options of SelectiveOptions.
std::vector<Unit> UnitsOfEqualCount(const PlanInput& input, const Options& resolved);

// The sizes of a unit's tensors that the planner may sparsify: those not kept dense.
std::vector<std::size_t> SparsifiableSizes(const GradientLayout& layout, const Unit& unit);

// The budget rule. A unit may send max(1, density * sum of sizes) elements. Tensors of each size,
// walking upwards, are paid from this budget. The largest cut lies one below the first size that is
// not below the rest of the budget.
std::size_t LargestCut(std::span<const std::size_t> sizes, double density);

// 0 and every size up to LargestCut, ascending: any cut leaves the same tensors dense as one of
// these.
std::vector<std::size_t> AdmissibleCuts(std::span<const std::size_t> sizes, double density);

// The density of the tensors above the cut that keeps the unit within density * sum of sizes, but
// at least `least`: (density * S - F) / (S - F), if F of S elements are dense.
double DensityAboveCut(std::span<const std::size_t> sizes, std::size_t cut, double density,
                       double least);

// The cut that the authors' planners choose: the first admissible cut with the least time of
// backward, selection and all-gather by the authors' tables. In the all-gather, the density is
// applied to the sent elements a second time.
std::size_t AuthorsCut(const GradientLayout& layout, const Unit& unit, double density,
                       std::string_view model);

// The cut for which seconds(cut) is least; the first if several are equal. cuts: not empty.
template <class Seconds>
std::size_t CheapestCut(std::span<const std::size_t> cuts, const Seconds& seconds) {
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  for (const std::size_t cut : cuts) {
    const double with = seconds(cut);
    if (with < least) {
      least = with;
      best = cut;
    }
  }
  return best;
}

// `own`, then the options "buffers", "tensors_per_unit" and "model", which both planners have.
std::vector<OptionSpec> SelectiveOptions(std::vector<OptionSpec> own);

// A planner named Planning::kName, whose plans a `Planning` makes from an input and options.
template <class Planning>
std::unique_ptr<Planner> MakeSelectivePlanner(const Options& resolved) {
  return PlannerBy([resolved](const PlanInput& input) {
    RequireAhead(input, Planning::kName);
    return Planning(input, resolved).MakePlan();
  });
}

}  // namespace sparfuse

#include "core/fusion/merged_times.hpp"

#include "core/payload/payload.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {
namespace {

double DensityOf(const PlanInput& input) {
  return input.sparsified == Sparsified::kNever ? 1.0 : input.density;
}

}  // namespace

MergedTimes::MergedTimes(const PlanInput& input, std::string_view planner)
    : input_(input), times_(input, planner) {
  for (std::size_t t = 0; t < input.layout.tensors(); ++t) {
    const TensorEntry& tensor = input.layout.tensor(t);
    const bool selected = input.sparsified == Sparsified::kAhead && !tensor.dense;
    elements_.push_back(tensor.numel);
    seconds_.push_back(times_.Backward(t) + times_.Sparsify(t, selected ? input.density : 1.0));
  }
}

double MergedTimes::Select(std::size_t elements, Lane lane) const {
  if (input_.sparsified != Sparsified::kBehind) return 0;
  return times_.SparsifyFused(elements, input_.density, lane);
}

double MergedTimes::Exchange(std::size_t elements) const {
  const double seconds =
      input_.sparsified == Sparsified::kNever
          ? times_.Reduce(elements)
          : times_.Gather(kSparseElementBytes * KeptCount(elements, input_.density));
  return seconds + times_.HostSecondsPerExchange(elements);
}

Plan PlanOfLengths(std::span<const std::size_t> lengths, const PlanInput& input) {
  Plan plan;
  std::size_t first = 0;
  for (const std::size_t length : lengths) {
    plan.units.push_back({first, first + length, input.sparsified, DensityOf(input)});
    first += length;
  }
  return plan;
}

}  // namespace sparfuse

#include "core/fusion/selective.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "core/base/error.hpp"
#include "core/cost/authors_tables.hpp"
#include "core/fusion/plan_times.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {
namespace {

std::size_t SumOf(std::span<const std::size_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

}  // namespace

void RequireAhead(const PlanInput& input, std::string_view planner) {
  SPARFUSE_REQUIRE(input.sparsified == Sparsified::kAhead, "planner \"", planner,
                   "\" decides for each tensor how it travels: expected a strategy that sparsifies "
                   "tensors before they are fused, say \"ahead\"");
}

std::vector<Unit> UnitsOfEqualCount(const PlanInput& input, std::size_t buffers,
                                    std::size_t tensors_per_unit) {
  const std::size_t tensors = input.layout.tensors();
  const std::size_t per_unit =
      tensors_per_unit > 0 ? tensors_per_unit : std::max<std::size_t>(1, tensors / buffers);
  return PlanOfLengths(EqualLengths(tensors, per_unit), input).units;
}

std::vector<Unit> UnitsOfEqualCount(const PlanInput& input, const Options& resolved) {
  return UnitsOfEqualCount(input, static_cast<std::size_t>(IntOption(resolved, "buffers")),
                           static_cast<std::size_t>(IntOption(resolved, "tensors_per_unit")));
}

std::vector<std::size_t> SparsifiableSizes(const GradientLayout& layout, const Unit& unit) {
  std::vector<std::size_t> sizes;
  for (std::size_t t = unit.first; t < unit.last; ++t) {
    if (!layout.tensor(t).dense) sizes.push_back(layout.tensor(t).numel);
  }
  return sizes;
}

std::size_t LargestCut(std::span<const std::size_t> sizes, double density) {
  std::vector<std::size_t> ascending(sizes.begin(), sizes.end());
  std::sort(ascending.begin(), ascending.end());
  double budget = std::max(1.0, density * static_cast<double>(SumOf(sizes)));
  for (const std::size_t size : ascending) {
    if (static_cast<double>(size) >= budget) return size - 1;
    budget -= static_cast<double>(size);
  }
  return 0;  // without tensors; otherwise the budget never exceeds the sum of their sizes
}

std::vector<std::size_t> AdmissibleCuts(std::span<const std::size_t> sizes, double density) {
  std::vector<std::size_t> cuts(sizes.begin(), sizes.end());
  cuts.push_back(0);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  cuts.erase(std::upper_bound(cuts.begin(), cuts.end(), LargestCut(sizes, density)), cuts.end());
  return cuts;
}

double DensityAboveCut(std::span<const std::size_t> sizes, std::size_t cut, double density,
                       double least) {
  double dense = 0;
  for (const std::size_t size : sizes) {
    if (size <= cut) dense += static_cast<double>(size);
  }
  const auto all = static_cast<double>(SumOf(sizes));
  if (dense == 0 || dense == all) return density;  // unchanged, so that kept counts are too
  return std::max(least, (density * all - dense) / (all - dense));
}

std::size_t AuthorsCut(const GradientLayout& layout, const Unit& unit, double density,
                       std::string_view model) {
  const std::vector<std::size_t> sizes = SparsifiableSizes(layout, unit);
  const std::size_t elements = layout.RangeOf(unit.first, unit.last).size();
  const double backward = AuthorsBackwardSeconds(model, elements, layout.numel());
  return CheapestCut(AdmissibleCuts(sizes, density), [&](std::size_t cut) {
    double seconds = backward;
    std::size_t sent = elements - SumOf(sizes);  // tensors that the experiment keeps dense
    for (const std::size_t size : sizes) {
      if (size > cut) seconds += AuthorsCompressionSeconds("topk", size);
      sent += size > cut ? KeptCount(size, density) : size;
    }
    return seconds + AuthorsCommunicationSeconds(sent, density);
  });
}

std::vector<OptionSpec> SelectiveOptions(std::vector<OptionSpec> own) {
  const OptionSpec shared[] = {
      WholeOption("buffers", 20, 1, 1e9, "a unit holds max(1, trunc(tensors / buffers)) tensors"),
      WholeOption("tensors_per_unit", 0, 0, 1e9, "tensors of a unit; 0 derives it from buffers"),
      ChoiceOption("model", "other",
                   {"other", "resnet50", "resnet101", "resnet152", "vgg16", "vgg19", "lstm",
                    "transformer", "bert_base"},
                   "row of the authors' backward times; other: none")};
  own.insert(own.end(), std::begin(shared), std::end(shared));
  return own;
}

}  // namespace sparfuse

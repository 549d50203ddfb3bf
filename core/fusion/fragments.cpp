// Plans the fragments of a model that are synchronised at different dates.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {
namespace {

Unit UnitOf(const PlanInput& input, std::size_t first, std::size_t last, std::size_t fragment) {
  Unit unit{first, last, input.sparsified, input.unit_density()};
  unit.date = static_cast<std::uint16_t>(fragment);
  return unit;
}

// "3:0,2:1,1:0": three tensors of fragment 0, two of fragment 1, one of fragment 0.
Plan PlanOfRuns(const PlanInput& input, const std::string& runs, std::size_t fragments) {
  const auto refuse = [&runs](const std::string& why) {
    SPARFUSE_THROW(kConfig, "planner \"fragments\": runs = \"", runs, "\": ", why);
  };
  Plan plan;
  std::vector<bool> seen(fragments);
  std::size_t next = 0;
  const char* at = runs.data();
  const char* const end = at + runs.size();
  while (true) {
    std::size_t tensors = 0, fragment = 0;
    const auto length = std::from_chars(at, end, tensors);
    const bool colon = length.ec == std::errc() && length.ptr != end && *length.ptr == ':';
    const auto number = std::from_chars(colon ? length.ptr + 1 : end, end, fragment);
    if (!colon || number.ec != std::errc() || tensors == 0 || fragment >= fragments ||
        (number.ptr != end && *number.ptr != ',')) {
      refuse("expected numbers of tensors, each with a colon and its fragment below " +
             std::to_string(fragments) + ", \"3:0,2:1\"");
    }
    if (tensors > input.layout.tensors() - next) break;
    plan.units.push_back(UnitOf(input, next, next + tensors, fragment));
    seen[fragment] = true;
    next += tensors;
    at = number.ptr;
    if (at == end) break;
    ++at;
  }
  if (next != input.layout.tensors() || at != end) {
    refuse("expected the " + std::to_string(input.layout.tensors()) + " tensors of the gradient");
  }
  if (std::ranges::find(seen, false) != seen.end()) {
    refuse("expected at least one tensor for each of the " + std::to_string(fragments) +
           " fragments");
  }
  return plan;
}

// Each run ends with the tensor that brings it nearest to its share of the elements.
Plan PlanOfEvenRuns(const PlanInput& input, std::size_t fragments, std::size_t stripes) {
  const GradientLayout& layout = input.layout;
  SPARFUSE_REQUIRE(fragments <= layout.tensors(), "planner \"fragments\": fragments = ", fragments,
                   ": the layout has ", layout.tensors(),
                   " tensors; expected no more fragments than tensors");
  const std::size_t runs = fragments * std::min(stripes, layout.tensors() / fragments);
  Plan plan;
  std::size_t next = 0;
  double elements = 0;  // before `next`
  const auto size = [&](std::size_t t) { return static_cast<double>(layout.tensor(t).numel); };
  for (std::size_t run = 0; run < runs; ++run) {
    const std::size_t first = next;
    const double share = static_cast<double>(layout.numel()) * static_cast<double>(run + 1) /
                         static_cast<double>(runs);
    const std::size_t last = layout.tensors() - (runs - run - 1);  // leaves one for each other run
    elements += size(next++);
    while (next < last && (run + 1 == runs ||
                           std::abs(elements + size(next) - share) <= std::abs(elements - share))) {
      elements += size(next++);
    }
    plan.units.push_back(UnitOf(input, first, next, run % fragments));
  }
  return plan;
}

}  // namespace

PlannerDescriptor FragmentsPlanner() {
  return {.name = kFragmentsPlanner,
          .summary = "fragments of about equal sizes, each exchanged on its own dates",
          .source = "Douillard et al., Streaming DiLoCo, arXiv 2501.18512, section 2.2",
          .revision = 1,
          .options = {WholeOption("fragments", 1, 1, 65535,
                                  "number of fragments, a divisor of `every`"),
                      WholeOption("stripes", 1, 1, 65535,
                                  "runs of tensors that make up a fragment, fewer if there are too "
                                  "few tensors; 1: consecutive tensors"),
                      TextOption("runs", "",
                                 "numbers of tensors in ready order, each with its fragment, "
                                 "\"3:0,2:1\"; empty: runs of about equal sizes")},
          .make =
              [](const Options& options) {
                return PlannerBy([options](const PlanInput& input) {
                  const auto fragments = static_cast<std::size_t>(IntOption(options, "fragments"));
                  const auto stripes = static_cast<std::size_t>(IntOption(options, "stripes"));
                  const std::string& runs = StringOption(options, "runs");
                  return runs.empty() ? PlanOfEvenRuns(input, fragments, stripes)
                                      : PlanOfRuns(input, runs, fragments);
                });
              },
          .deviations = "The paper's fragments are of whole layers; these are of whole tensors."};
}

}  // namespace sparfuse

// Selects by a fixed threshold, and by the k-th magnitude, as published code does.
//
// Source: N. Strom, "Scalable distributed DNN training using commodity GPU cloud computing",
// Interspeech 2015.
#include <algorithm>

#include "core/sparsify/published/published.hpp"

namespace sparfuse {
namespace {

// Sends those of the k largest that exceed the smallest of them. Ties at the k-th place all stay.
void SelectAboveKth(const PublishedCall& call) {
  call.Take(Comparison::kAbove, call.KthMagnitude());
}

std::unique_ptr<Sparsifier> MakeGraceDist(const Options& resolved, std::uint64_t /*seed*/) {
  const double tau = DoubleOption(resolved, "tau");
  return MakePublished("threshold@grace-dist", [tau](const PublishedCall& call) {
    const float* const x = call.input.x();
    const auto largest = static_cast<double>(*std::max_element(x, x + call.input.n));
    call.Take(Comparison::kAtLeast, std::min(tau, largest));
  });
}

}  // namespace

std::vector<SparsifierDescriptor> PublishedThresholdDescriptors() {
  return {
      {.name = "threshold@wfbp",
       .paper = "Strom, Interspeech 2015",
       .revision = 1,
       .exact_count = false,
       .selection_model = {-0.006, 0.006},
       .contraction = OneElement,
       .deviations = "As in the code of WFBP, ADTopk and Ok-Topk: elements above the k-th "
                     "magnitude are sent, so k - 1 elements, or fewer if several equal it.",
       .make = [](const Options&,
                  std::uint64_t) { return MakePublished("threshold@wfbp", SelectAboveKth); },
       .aliases = {"threshold@adtopk", "threshold@oktopk"}},
      {.name = "threshold@grace-dist",
       .paper = "Strom, Interspeech 2015",
       .revision = 1,
       .exact_count = false,
       .selection_model = {1.844, 1.813},
       .contraction = OneElement,
       .deviations =
           "As in GRACE's code for distributed PyTorch: |x| >= the smaller of tau and the "
           "largest element by sign, so that data without positive elements is sent whole. The "
           "density asked for has no influence.",
       .options = {NumberOption("tau", 0.01, 0, 1e30, "elements with |x| >= tau are sent")},
       .make = MakeGraceDist,
       .unbounded_count = true},
  };
}

}  // namespace sparfuse

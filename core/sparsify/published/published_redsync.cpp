// Selects by RedSync's thresholds between mean and largest magnitude as published code does.
//
// Source: J. Fang et al., "RedSync: reducing synchronization bandwidth for distributed deep
// learning training system", JPDC 2019.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/sparsify/published/published.hpp"

namespace sparfuse {
namespace {

constexpr double kStep = 0.2;

struct Between {
  double mean;
  double max;
  double At(double position) const { return mean + position * (max - mean); }
};

Between MeanToMax(const PublishedCall& call) {
  return {call.Magnitudes().mean, Measure(call.context, call.input, call.info).MaxAbs()};
}

// Searches in three counts at most, and sends the selection of the last one.
void SelectBinary(const PublishedCall& call) {
  const Between between = MeanToMax(call);
  double low = 0;
  double high = 1;
  double threshold = between.max;
  while (high - low > kStep) {
    const double middle = (low + high) / 2;
    threshold = between.At(middle);
    const std::size_t count = call.Count(Comparison::kAbove, threshold);
    if (call.k < count && count < 2 * call.k) break;
    (2 * count < call.k ? high : low) = middle;
  }
  call.Take(Comparison::kAbove, threshold);
}

// Lowers the threshold in steps until the k-th magnitude is above it, and thus k elements are.
// Sends all elements above it.
void SelectTrimmed(const PublishedCall& call) {
  // Close magnitudes far from zero take any number of steps below their mean, and equal ones never
  // come above the threshold.
  constexpr int kMostSteps = 10'000;
  const Between between = MeanToMax(call);
  const double kth = call.KthMagnitude();
  for (int step = 1; step <= kMostSteps; ++step) {
    const double threshold = between.At(1 - kStep * step);
    if (static_cast<float>(threshold) < static_cast<float>(kth)) {
      call.Take(Comparison::kAbove, threshold);
      return;
    }
  }
  call.FallBack();
}

}  // namespace

std::vector<SparsifierDescriptor> PublishedRedSyncDescriptors() {
  SparsifierDescriptor binary{
      .name = "redsync@saf",
      .paper = "Fang et al., JPDC 2019",
      .revision = 1,
      .exact_count = false,
      .selection_model = {-0.403, 1.01},
      .contraction = OneElement,
      .deviations =
          "In the code of SAFusion, SSFusion, ADTopk and SIDCo: a binary search of three counts at "
          "most, which raises the threshold if it has k/2 to k elements and sends the elements of "
          "the last one: about 0.5 / 0.8 / 0.5 times k of Gaussian / Laplace / Student t (3) data, "
          "and next to nothing beside an outlier. Thresholds are not kept from step to step.",
      .make = [](const Options&,
                 std::uint64_t) { return MakePublished("redsync@saf", SelectBinary); },
      .aliases = {"redsync@ssf", "redsync@adtopk", "redsync@sidco"},
      .unbounded_count = true,
      .reusable_threshold = true};
  SparsifierDescriptor trimmed = binary;
  trimmed.name = "redsynctrim@sidco";
  trimmed.selection_model = {1.107, 0.567};
  trimmed.deviations =
      "In the code of SIDCo and ADTopk: the threshold comes down from 0.8 of the way between mean "
      "and maximum in steps of 0.2 until k elements are above it, and all of them are sent, "
      "without the paper's exact top-k among them: 2 / 5 / 35 times k of Gaussian / Laplace / "
      "Student t (3) data. Equal magnitudes, for which that code never ends, become an exact "
      "top-k.";
  trimmed.make = [](const Options&, std::uint64_t) {
    return MakePublished("redsynctrim@sidco", SelectTrimmed);
  };
  trimmed.aliases = {"redsynctrim@adtopk"};
  return {std::move(binary), std::move(trimmed)};
}

}  // namespace sparfuse

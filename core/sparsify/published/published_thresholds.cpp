// Selects by a threshold as published code does.
//
// Gaussian-K   S. Shi et al., "Understanding top-k sparsification in distributed deep learning",
//              2019. The threshold is the normal quantile, mean + z * deviation of x, corrected as
//              each implementation does. Magnitudes are compared, though the moments are of the
//              signed x.
// RedSync      J. Fang et al., "RedSync: reducing synchronization bandwidth for distributed deep
//              learning training system", JPDC 2019: between mean and largest magnitude.
// Threshold    N. Strom, "Scalable distributed DNN training using commodity GPU cloud computing",
//              Interspeech 2015: fixed, or the k-th magnitude.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/sparsify/published/published.hpp"

namespace sparfuse {
namespace {

constexpr Comparison kAtLeast = Comparison::kAtLeast;
constexpr Comparison kAbove = Comparison::kAbove;

// --- Gaussian-K

// Returns the quantile of a normal distribution with these moments.
double NormalThreshold(const PublishedCall& call, const Moments& x) {
  return x.mean + TwoSidedNormalQuantile(call.density) * std::sqrt(x.variance);
}

double NormalThreshold(const PublishedCall& call) { return NormalThreshold(call, call.Signed()); }

void SelectSaf(const PublishedCall& call) {
  const auto n = static_cast<double>(call.input.n);
  const auto k = static_cast<double>(call.k);
  // The lower bound is n times the intended one, so the threshold never comes to rest.
  const ThresholdWalk walk{1.2 * k, 1.2, 0.8 * n * k, 0.8, 5};
  call.Take(kAtLeast, call.Refine(kAtLeast, NormalThreshold(call), walk));
}

void SelectSsf(const PublishedCall& call) { call.Take(kAtLeast, NormalThreshold(call)); }

// Divides the threshold by `step` until `wanted` elements are above it, `rounds` times at most.
double Lower(const PublishedCall& call, double threshold, double step, std::size_t wanted,
             int rounds) {
  for (int i = 0; i < rounds && call.Count(kAbove, threshold) < wanted; ++i) threshold /= step;
  return threshold;
}

void SelectOkTopk(const PublishedCall& call) {
  constexpr int kRounds = 20;
  constexpr double kFactor = 1.02;
  const std::size_t most = 5 * call.k / 4;
  double threshold = NormalThreshold(call);
  if (call.Count(kAbove, threshold) > most) {
    for (int i = 0; i < kRounds && call.Count(kAbove, threshold) > most; ++i) threshold *= kFactor;
  } else {
    threshold = Lower(call, threshold, kFactor, 3 * call.k / 4, kRounds);
  }
  call.Take(kAbove, threshold);
}

void SelectOkTopkLstm(const PublishedCall& call) {
  call.Take(kAbove, Lower(call, NormalThreshold(call), 1.012, 3 * call.k / 4, 50));
}

void SelectOkTopkBert(const PublishedCall& call) {
  double threshold = NormalThreshold(call);
  if (call.Count(kAbove, threshold) < 3 * call.k / 4) {
    threshold = Lower(call, threshold, 1.012, 5 * call.k / 6, 20);
  }
  call.Take(kAbove, threshold);
}

// Halves the threshold below 2k/3 elements, and raises it by half above 4k/3. The selection belongs
// to the last counted threshold: a threshold that is counted r times moves r - 1 times.
ThresholdWalk HalvingWalk(const PublishedCall& call, int counted) {
  const auto k = static_cast<double>(call.k);
  return {4 * k / 3, 1.5, 2 * k / 3, 0.5, counted - 1};
}

// Takes the moments of the magnitudes, whose distribution is not normal.
void SelectSidco(const PublishedCall& call) {
  const double threshold = NormalThreshold(call, call.Magnitudes());
  call.Take(kAbove, call.Refine(kAbove, threshold, HalvingWalk(call, 3)));
}

void SelectAdtopk(const PublishedCall& call) {
  call.Take(kAbove, call.Refine(kAbove, NormalThreshold(call), HalvingWalk(call, 5)));
}

struct Form {
  std::string_view name;
  std::string_view alias;
  void (*select)(const PublishedCall&);
  SelectionModel model;
  std::string_view deviations;
};

// "times k" in the texts holds for 65,536 elements of Gaussian / Laplace / Student t (3) data, at a
// density of 0.01. A mean other than zero changes all of them.
constexpr Form kForms[] = {
    {"gaussiank@saf",
     "gaussian@saf",
     SelectSaf,
     {-0.479, 1.035},
     "In the code of SAFusion and WFBP: |x| >= threshold; five corrections by 1.2 and 0.8, whose "
     "lower bound has a factor n too many, so that the threshold never settles. Sends 0.45 / 1.8 / "
     "1.6 times k."},
    {"gaussiank@ssf",
     "gaussian@ssf",
     SelectSsf,
     {0.352, 0.98},
     "In SSFusion's code: |x| >= threshold, not corrected. Sends 1.0 / 2.6 / 2.1 times k."},
    {"gaussiank@oktopk",
     "gaussian@oktopk",
     SelectOkTopk,
     {0.111, 0.126},
     "In Ok-Topk's code for VGG, and SparDL's: |x| > threshold; up to 20 steps of 2 % towards 3k/4 "
     "to 5k/4 elements, in the direction of the first. Sends 1.0 / 1.2 / 1.2 times k."},
    {"gaussiank@oktopk-lstm",
     "gaussian@oktopk-lstm",
     SelectOkTopkLstm,
     {0.597, 0.568},
     "In Ok-Topk's code for LSTM: |x| > threshold; up to 50 steps of 1.2 % down while fewer than "
     "3k/4 elements are above it, none up. Sends 1.0 / 2.6 / 2.1 times k."},
    {"gaussiank@oktopk-bert",
     "gaussian@oktopk-bert",
     SelectOkTopkBert,
     {0.614, 0.546},
     "In Ok-Topk's code for BERT: |x| > threshold; if fewer than 3k/4 elements are above it, up to "
     "20 steps of 1.2 % down to 5k/6, none up. Sends 1.0 / 2.6 / 2.1 times k."},
    {"gaussiank@sidco",
     "gaussian@sidco",
     SelectSidco,
     {1.448, 0.958},
     "In SIDCo's code: mean and deviation of |x|, although the quantile is of a normal "
     "distribution; three counts, the threshold halved below 2k/3 elements and raised by a half "
     "above 4k/3. Sends 7.8 / 6.8 / 2 to 5 times k."},
    {"gaussiank@adtopk",
     "gaussian@adtopk",
     SelectAdtopk,
     {-1.448, 1.881},
     "In ADTopk's code: five counts, the threshold halved below 2k/3 elements and raised by a half "
     "above 4k/3, between which it may swing. Sends 1.0 / 0.2 / 0.7 times k; with a mean of four "
     "deviations, most of x."},
};

// --- RedSync

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
    const std::size_t count = call.Count(kAbove, threshold);
    if (call.k < count && count < 2 * call.k) break;
    (2 * count < call.k ? high : low) = middle;
  }
  call.Take(kAbove, threshold);
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
      call.Take(kAbove, threshold);
      return;
    }
  }
  call.FallBack();
}

// --- thresholds

// Sends those of the k largest that exceed the smallest of them. Ties at the k-th place all stay.
void SelectAboveKth(const PublishedCall& call) { call.Take(kAbove, call.KthMagnitude()); }

std::unique_ptr<Sparsifier> MakeGraceDist(const Options& resolved, std::uint64_t /*seed*/) {
  const double tau = DoubleOption(resolved, "tau");
  return MakePublished("threshold@grace-dist", [tau](const PublishedCall& call) {
    const float* const x = call.input.x();
    const auto largest = static_cast<double>(*std::max_element(x, x + call.input.n));
    call.Take(kAtLeast, std::min(tau, largest));
  });
}

}  // namespace

std::vector<SparsifierDescriptor> PublishedGaussianDescriptors() {
  std::vector<SparsifierDescriptor> descriptors;
  for (const Form& form : kForms) {
    descriptors.push_back(
        {.name = form.name,
         .paper = "Shi et al., 2019",
         .selection_model = form.model,
         .contraction = OneElement,
         .deviations = form.deviations,
         .make = [&form](const Options&,
                         std::uint64_t) { return MakePublished(form.name, form.select); },
         .aliases = {form.alias},
         .unbounded_count = true,
         .reusable_threshold = true});
  }
  return descriptors;
}

std::vector<SparsifierDescriptor> PublishedRedSyncDescriptors() {
  SparsifierDescriptor binary{
      .name = "redsync@saf",
      .paper = "Fang et al., JPDC 2019",
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

std::vector<SparsifierDescriptor> PublishedThresholdDescriptors() {
  return {
      {.name = "threshold@wfbp",
       .paper = "Strom, Interspeech 2015",
       .selection_model = {-0.006, 0.006},
       .contraction = OneElement,
       .deviations = "As in the code of WFBP, ADTopk and Ok-Topk: elements above the k-th "
                     "magnitude are sent, so k - 1 elements, or fewer if several equal it.",
       .make = [](const Options&,
                  std::uint64_t) { return MakePublished("threshold@wfbp", SelectAboveKth); },
       .aliases = {"threshold@adtopk", "threshold@oktopk"}},
      {.name = "threshold@grace-dist",
       .paper = "Strom, Interspeech 2015",
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

// Selects by Gaussian-K as published code does: takes a threshold from the normal quantile, mean +
// z * deviation of x, then corrects it as each implementation does. Magnitudes are compared, though
// the moments are of the signed x.
//
// Source: S. Shi et al., "Understanding top-k sparsification in distributed deep learning", 2019.
#include <cmath>

#include "core/sparsify/published/published.hpp"

namespace sparfuse {
namespace {

constexpr Comparison kAtLeast = Comparison::kAtLeast;
constexpr Comparison kAbove = Comparison::kAbove;

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
  constexpr double kStep = 1.02;
  const std::size_t most = 5 * call.k / 4;
  double threshold = NormalThreshold(call);
  if (call.Count(kAbove, threshold) > most) {
    for (int i = 0; i < kRounds && call.Count(kAbove, threshold) > most; ++i) threshold *= kStep;
  } else {
    threshold = Lower(call, threshold, kStep, 3 * call.k / 4, kRounds);
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

}  // namespace

std::vector<SparsifierDescriptor> PublishedGaussianDescriptors() {
  std::vector<SparsifierDescriptor> descriptors;
  for (const Form& form : kForms) {
    descriptors.push_back(
        {.name = form.name,
         .paper = "Shi et al., 2019",
         .revision = 1,
         .exact_count = false,
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

}  // namespace sparfuse

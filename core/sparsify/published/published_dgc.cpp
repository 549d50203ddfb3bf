// Selects by Deep Gradient Compression's sampled threshold as published code does. The threshold is
// a magnitude of a sample, which most forms correct. Only SIDCo's form cuts the selection to size.
//
// Source: Y. Lin et al., "Deep gradient compression", ICLR 2018.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/random_stream.hpp"
#include "core/sparsify/published/published.hpp"
#include "core/sparsify/randomk/randomk.hpp"

namespace sparfuse {
namespace {

std::size_t TruncatedCount(double product) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(product));
}

constexpr Comparison kAtLeast = Comparison::kAtLeast;
constexpr Comparison kAbove = Comparison::kAbove;

std::size_t CeilCount(const PublishedCall& call) {
  return std::min(call.input.n, static_cast<std::size_t>(std::ceil(call.Target())));
}

std::span<std::uint32_t> SampleRoom(const PublishedCall& call, std::size_t samples) {
  return WorkspaceArray<std::uint32_t>(*call.context.workspace, kUseKeys, samples);
}

std::uint32_t KeyAt(const PublishedCall& call, std::size_t i) { return KeyOf(call.input.x()[i]); }

// Returns the rank-th largest magnitude. Reorders the keys. 1 <= rank <= keys.size().
double Largest(std::span<std::uint32_t> keys, std::size_t rank) {
  const auto at = keys.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(keys.begin(), at, keys.end(), std::greater<>());
  return static_cast<double>(std::bit_cast<float>(*at));
}

struct SampledForm {
  double sample_ratio;  // of the tensor; 0: the density of the call
  bool smallest;        // the threshold is the smallest sampled magnitude, not a quantile
  double upper;
  double lower;
  int rounds;
};

// Samples with replacement, selects |x| >= threshold and corrects the threshold by its bounds.
void SelectSampled(const PublishedCall& call, std::uint64_t seed, const SampledForm& form) {
  const double wanted = call.Target();
  const std::size_t samples = TruncatedCount(
      form.sample_ratio == 0 ? wanted : form.sample_ratio * static_cast<double>(call.input.n));
  const double ratio = form.sample_ratio == 0 ? call.density : form.sample_ratio;
  const std::size_t rank = form.smallest ? samples : TruncatedCount(wanted * ratio);
  const RandomStream stream(seed, call.info.id, call.info.step);
  const auto keys = SampleRoom(call, samples);
  for (std::size_t s = 0; s < samples; ++s) keys[s] = KeyAt(call, stream.Below(call.input.n, s));
  const ThresholdWalk walk{form.upper * wanted, form.upper, form.lower * wanted, form.lower,
                           form.rounds};
  call.Take(kAtLeast, call.Refine(kAtLeast, Largest(keys, rank), walk));
}

// Samples one element in a hundred without replacement. If too many are above the threshold, sends
// the k largest of them.
void SelectSidco(const PublishedCall& call, std::uint64_t seed) {
  const std::size_t n = call.input.n;
  const auto samples = static_cast<std::size_t>(std::ceil(0.01 * static_cast<double>(n)));
  const auto rank =
      static_cast<std::size_t>(std::ceil(static_cast<double>(samples) * call.density));
  const auto bitmap = ClearBitmap(*call.context.workspace, n);
  MarkDistinct(RandomStream(seed, call.info.id, call.info.step), n, samples, bitmap);
  const auto keys = SampleRoom(call, samples);
  std::size_t taken = 0;
  for (std::size_t w = 0; w < bitmap.size(); ++w) {
    for (std::uint64_t word = bitmap[w]; word != 0; word &= word - 1) {
      keys[taken++] = KeyAt(call, 64 * w + static_cast<std::size_t>(std::countr_zero(word)));
    }
  }
  const double threshold = Largest(keys, std::min(rank, samples));
  const std::size_t k = CeilCount(call);
  if (3 * call.Count(kAbove, threshold) > 4 * k) {
    // More than k are above the threshold: their k largest are the k largest of x.
    call.TakeLargest(k);
  } else {
    call.Take(kAbove, threshold);
  }
}

// Sends the first k elements by position that reach the key. Returns false, with nothing sent, if
// they are fewer.
bool SelectFirst(const PublishedCall& call, std::uint32_t key) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < call.input.n && taken < call.k; ++i) {
    if (KeyAt(call, i) < key) continue;
    call.slot.indices.data[taken] = static_cast<std::uint32_t>(i);
    call.slot.values.data[taken] = call.input.x()[i];
    ++taken;
  }
  if (taken < call.k) return false;
  call.slot.count = taken;
  if (call.input.residual != nullptr) {
    for (std::size_t j = 0; j < taken; ++j) call.input.residual[call.slot.indices.data[j]] = 0.0f;
  }
  return true;
}

// Samples with a stride from a random start. Sends trunc(n * density) elements in every case.
void SelectPool(const PublishedCall& call, std::uint64_t seed) {
  constexpr std::size_t kExactBelow = 16384;
  constexpr std::size_t kDenseBelow = (std::size_t{1} << 20) + 1;
  const std::size_t n = call.input.n;
  if (n < kExactBelow) {
    call.TakeLargest(CeilCount(call));
    return;
  }
  // One less than the inverse of the intended ratios, 0.01 and 0.001: floor(1 / 0.01) in floating
  // point.
  const std::size_t stride = n < kDenseBelow ? 99 : 999;
  const RandomStream stream(seed, call.info.id, call.info.step);
  const auto keys = SampleRoom(call, n / stride + 1);
  std::size_t samples = 0;
  for (std::size_t i = stream.Below(stride, 0); i < n; i += stride) {
    keys[samples++] = KeyAt(call, i);
  }
  const auto rank =
      static_cast<std::size_t>(std::ceil(static_cast<double>(samples) * call.density * 1.1));
  const auto k = static_cast<double>(call.k);
  const double threshold =
      call.Refine(kAtLeast, Largest(keys.first(samples), std::min(rank, samples)),
                  {1.3 * k, 1.3, 0.7 * k, 0.7, 4});
  if (SelectFirst(call, KeyAtLeast(threshold))) return;
  SelectDrawn(call.context, call.input, call.info,
              RandomStream(~seed, call.info.id, call.info.step), call.k, call.slot);
}

// The selection may consist of the smallest elements: the first by position, or random ones.
double Nothing(std::span<const std::int64_t> /*shape*/, double /*density*/) { return 0; }

struct Form {
  std::string_view name;
  void (*select)(const PublishedCall&, std::uint64_t seed);
  SelectionModel model;
  std::string_view deviations;
  bool unbounded_count = true;
  double (*contraction)(std::span<const std::int64_t>, double) = OneElement;
};

// "times k" in the texts holds for 65,536 elements of Gaussian data at a density of 0.01.
constexpr Form kForms[] = {
    {"dgc@grace",
     [](const PublishedCall& call, std::uint64_t seed) {
       SelectSampled(call, seed, {0.01, false, 1.3, 0.7, 10});
     },
     {-0.249, 0.917},
     "In GRACE's code: samples n / 100 with replacement, corrects up to ten times by 1.3 and 0.7, "
     "and never cuts to size. Sends 0.95 +- 0.17 times k."},
    {"dgc@adtopk",
     [](const PublishedCall& call, std::uint64_t seed) {
       SelectSampled(call, seed, {0.01, false, 1.3, 0.7, 2});
     },
     {0.195, 0.588},
     "In ADTopk's code: as dgc@grace, with two corrections. Sends 1.3 +- 0.7 times k."},
    {"dgc@saf",
     [](const PublishedCall& call, std::uint64_t seed) {
       SelectSampled(call, seed, {0, false, 1.3, 0.7, 2});
     },
     {0.195, 0.588},
     "In SAFusion's code: samples k with replacement, corrects twice by 1.3 and 0.7, and never "
     "cuts to size. Sends 1.3 +- 0.7 times k."},
    {"dgc@ssf",
     [](const PublishedCall& call, std::uint64_t seed) {
       SelectSampled(call, seed, {0, false, 1.2, 0.8, 10});
     },
     {0.11, 0.561},
     "In SSFusion's code: samples k with replacement, corrects up to ten times by 1.2 and 0.8, and "
     "never cuts to size. Sends 0.95 +- 0.1 times k."},
    {"dgc@wfbp",
     [](const PublishedCall& call, std::uint64_t seed) {
       SelectSampled(call, seed, {0, true, 1.3, 0.7, 2});
     },
     {4.6, 0.015},
     "In the code of WFBP: sends nearly everything. Its threshold is the smallest of k sampled "
     "magnitudes, corrected twice by 1.3: 99.8 times k at a density of 0.01."},
    {"dgc@sidco",
     SelectSidco,
     {-0.184, 0.433},
     "In SIDCo's code: samples n / 100 without replacement, |x| > threshold; above 4k/3 elements "
     "it sends the k largest of them, and it does not correct too few. Sends 0.92 +- 0.22 times k.",
     false},
    {"dgc@pool",
     SelectPool,
     {0.002, 0.008},
     "In Cupcake's code: below 16,384 elements exact top-k; else samples with a stride of 99 or "
     "999 elements, corrects up to four times by 1.3 and 0.7, and sends the first k by position "
     "or, "
     "if there are fewer, k positions drawn at random with replacement. Sends k, of which 0.4 are "
     "among the k largest. A position that is drawn twice is sent once.",
     false,
     Nothing},
};

}  // namespace

std::vector<SparsifierDescriptor> PublishedDgcDescriptors() {
  std::vector<SparsifierDescriptor> descriptors;
  for (const Form& form : kForms) {
    descriptors.push_back({.name = form.name,
                           .paper = "Lin et al., ICLR 2018",
                           .selection_model = form.model,
                           .contraction = form.contraction,
                           .deviations = form.deviations,
                           .make =
                               [&form](const Options&, std::uint64_t seed) {
                                 return MakePublished(form.name,
                                                      [&form, seed](const PublishedCall& call) {
                                                        form.select(call, seed);
                                                      });
                               },
                           .unbounded_count = form.unbounded_count,
                           .reusable_threshold = form.contraction != Nothing});
  }
  return descriptors;
}

}  // namespace sparfuse

// Selects by GaussianK: takes the threshold that a normal distribution with the tensor's mean and
// deviation puts at the density.
//
// Source:      S. Shi, X. Chu, K. C. Cheung, S. See, "Understanding top-k sparsification in
//              distributed deep learning", arXiv 1911.08772, 2019, algorithm 1.
// Deviations:  gaussiank: if the estimate selects over 2 % more or less than k, the k largest are
//              sent; the paper halves and raises the threshold in three steps. gaussiank@paper: an
//              empty selection, or one that overflows its slot, becomes an exact top-k.
//
// With mean m, deviation s (unbiased) of x and z = the normal quantile of 1 - density / 2:
//   estimate   t = m + z s; |x| > t is selected.
//   paper      at most three selections: fewer than 2k/3 elements halve t, more than 4k/3 raise it
//              by half; the last selection is sent.

#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/gaussiank/gaussiank_kernels.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

double Estimate(const Statistics& statistics, double density) {
  return GaussianThreshold(statistics, TwoSidedNormalQuantile(density));
}

class GaussianK final : public WarmSparsifier {
 public:
  std::string_view name() const noexcept override { return "gaussiank"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* state, Slot& slot) const override {
    WarmBound* const bound = BoundOf(state);
    Statistics statistics;
    statistics.moments = kWantSum | kWantSquares;
    const Candidates candidates =
        CollectAndMeasure(context, input, info, aim.k, bound, &statistics);
    SendCorrected(context, input, info, candidates, Estimate(statistics, aim.density), aim.k, bound,
                  slot);
  }

  // Cost: one pass over x.
  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* state,
                          DeviceSlot& slot) const override {
    const double z = TwoSidedNormalQuantile(aim.density);
    DeviceScan scan = PrepareScan(context, input, info, aim.k, slot,
                                  Correcting(input.n, aim.k, WarmWordsOf(state)));
    CollectAndMeasureOnDevice<false>(context, scan, gpu::AimAtGaussian{z, CorrectionOf(scan)});
    RecollectOnDevice(context, scan);
    SendReaching(context, scan, slot);
  }
};

class GaussianKPaper final : public DeviceScanSparsifier {
 public:
  std::string_view name() const noexcept override { return "gaussiank@paper"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    const double t = Estimate(Measure(context, input, info), aim.density);
    const GaussianWalk walk;
    std::uint32_t keys[kGaussianTries];
    std::size_t counts[kGaussianTries];
    for (std::size_t i = 0; i < kGaussianTries; ++i) keys[i] = KeyAbove(t * walk.factors[i]);
    CountReaching(context, input, keys, counts);
    const std::size_t at = walk.Last(aim.k, [&](std::size_t i) { return counts[i]; });
    TakeReaching(context, input, info, keys[at], aim.k, slot);
  }

  // Cost: three passes over x.
  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* /*state*/,
                          DeviceSlot& slot) const override {
    const std::size_t k = aim.k;
    const double z = TwoSidedNormalQuantile(aim.density);
    auto* const step = context.workspace->Get<gpu::GaussianStep>(context.stream, kUseStep, 1);
    DeviceScan scan = PrepareScan(context, input, info, k, slot, NothingCollected());
    CollectAndMeasureOnDevice<false>(context, scan, gpu::ListTries{z, step});
    scan = PrepareScan(context, scan.input, info, k, slot, NothingCollected());
    CollectAndMeasureOnDevice<true>(context, scan, gpu::ChooseTry{k, step}, {}, &step->tries);
    scan = PrepareScan(context, scan.input, info, k, slot, Reaching(input.n, k, &step->key, slot));
    CollectOnDevice(context, scan);
    SendReaching(context, scan, slot);
  }
};

}  // namespace

SparsifierDescriptor GaussianKDescriptor() {
  return {.name = "gaussiank",
          .paper = "Shi et al., arXiv 1911.08772, 2019",
          .revision = 2,
          // Measured on random data and a small network's gradients
          // (SelectionModels.OfCorrectedEstimatesHold).
          .selection_model = {0, 0.003},
          .contraction = CorrectedFraction,
          .deviations =
              "If the estimate selects a count more than 2 % off k, the k largest are sent; the "
              "paper halves and raises the threshold in steps instead.",
          .make = MakePlain<GaussianK>,
          .aliases = {"gaussian"},
          .reusable_threshold = true};
}

SparsifierDescriptor GaussianKPaperDescriptor() {
  return {
      .name = "gaussiank@paper",
      .paper = "Shi et al., arXiv 1911.08772, 2019",
      .selection_model = {0.787, 1.728},
      .contraction = OneElement,
      .deviations = "An empty selection, or one that overflows its slot, becomes an exact top-k.",
      .make = MakePlain<GaussianKPaper>,
      .unbounded_count = true,
      .reusable_threshold = true};
}

}  // namespace sparfuse

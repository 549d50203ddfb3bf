// Selects by GaussianK: takes the threshold that a normal distribution with the tensor's mean and
// deviation puts at the density.
//
// Source:      S. Shi, X. Chu, K. C. Cheung, S. See, "Understanding top-k sparsification in
//              distributed deep learning", arXiv 1911.08772, 2019, algorithm 1.
// Deviations:  gaussiank: where the estimate selects more than 2 % beside k, the k largest are sent
//              instead of what three steps of halving and raising lead to. gaussiank@paper: what
//              would send nothing, or overflows its slot, becomes an exact top-k.
//
// With mean m, deviation s (unbiased) of x and z = the normal quantile of 1 - density / 2:
//   estimate   t = m + z s; |x| > t is selected.
//   paper      at most three selections: fewer than 2k/3 halve t, more than 4k/3 raise it by half;
//              the last selection is sent.
#include "core/sparsify/gaussiank/gaussiank.hpp"

#include <algorithm>

#include "core/sparsify/gaussiank/gaussiank_device.hpp"
#include "core/sparsify/gaussiank/gaussiank_estimate.hpp"
#include "core/sparsify/scan/corrected.hpp"

namespace sparfuse {
namespace {

double Estimate(const Statistics& statistics, double density) {
  return GaussianThreshold(statistics, TwoSidedNormalQuantile(density));
}

class GaussianK final : public Sparsifier {
 public:
  std::string_view name() const noexcept override { return "gaussiank"; }

  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    return std::make_unique<WarmState>(n);
  }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* state, Slot& slot) const override {
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    const std::size_t k = KeptCount(input.n, density);
    RequireRoom(name(), info, slot, k);
    if (k == input.n) return SelectAll(context, input, info, slot);
    WarmBound* const bound = BoundOf(state);
    Statistics statistics;
    const Candidates candidates = CollectAndMeasure(context, input, info, k, bound, &statistics);
    SendCorrected(context, input, info, candidates, Estimate(statistics, density), k, bound, slot);
  }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t /*n*/,
                                                   Device device) const override {
    return std::make_unique<DeviceWarmState>(device);
  }

  bool SelectsOnDevice() const noexcept override { return true; }

  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    const std::size_t k = KeptOf(source, density);
    const DeviceInput input = BeginSelectOnDevice(name(), context, source, density, info, slot, k);
    if (k == input.n) return SelectAllOnDevice(context, input, slot);
    SelectGaussianOnDevice(context, input, info, k, TwoSidedNormalQuantile(density),
                           WarmWordsOf(state), slot);
  }
};

class GaussianKPaper final : public Sparsifier {
 public:
  std::string_view name() const noexcept override { return "gaussiank@paper"; }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* /*state*/, Slot& slot) const override {
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    const std::size_t k = KeptCount(input.n, density);
    RequireRoom(name(), info, slot, k);
    if (k == input.n) return SelectAll(context, input, info, slot);
    const double t = Estimate(Measure(context, input, info), density);
    const GaussianWalk walk;
    std::uint32_t keys[kGaussianTries];
    std::size_t counts[kGaussianTries];
    for (std::size_t i = 0; i < kGaussianTries; ++i) keys[i] = KeyAbove(t * walk.factors[i]);
    CountReaching(context, input, keys, counts);
    const std::size_t at = walk.Last(k, [&](std::size_t i) { return counts[i]; });
    TakeReaching(context, input, info, keys[at], k, slot);
  }

  bool SelectsOnDevice() const noexcept override { return true; }

  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* /*state*/,
                      DeviceSlot& slot) const override {
    const std::size_t k = KeptOf(source, density);
    const DeviceInput input = BeginSelectOnDevice(name(), context, source, density, info, slot, k);
    if (k == input.n) return SelectAllOnDevice(context, input, slot);
    SelectGaussianPaperOnDevice(context, input, info, k, TwoSidedNormalQuantile(density), slot);
  }
};

}  // namespace

SparsifierDescriptor GaussianKDescriptor() {
  return {
      .name = "gaussiank",
      .paper = "Shi et al., arXiv 1911.08772, 2019",
      .revision = 2,
      .exact_count = false,
      .index_shared = false,
      // On random data and a small network's gradients (SelectionModels.OfCorrectedEstimatesHold).
      .selection_model = {0, 0.003},
      .contraction = CorrectedFraction,
      .deviations =
          "Where the estimate's count is more than 2 % beside k, the k largest are sent instead "
          "of what the paper's steps of halving and raising the threshold lead to.",
      .options = {},
      .make = [](const Options&, std::uint64_t) -> std::unique_ptr<Sparsifier> {
        return std::make_unique<GaussianK>();
      },
      .aliases = {"gaussian"},
      .reusable_threshold = true};
}

SparsifierDescriptor GaussianKPaperDescriptor() {
  return {
      .name = "gaussiank@paper",
      .paper = "Shi et al., arXiv 1911.08772, 2019",
      .revision = 1,
      .exact_count = false,
      .index_shared = false,
      .selection_model = {0.787, 1.728},
      .contraction = OneElement,
      .deviations = "An empty selection, or one that overflows its slot, becomes an exact top-k.",
      .options = {},
      .make = [](const Options&, std::uint64_t) -> std::unique_ptr<Sparsifier> {
        return std::make_unique<GaussianKPaper>();
      },
      .unbounded_count = true,
      .reusable_threshold = true};
}

}  // namespace sparfuse

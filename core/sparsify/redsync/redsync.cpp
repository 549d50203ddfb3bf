// Selects RedSync's trimmed top-k: a search down from the largest magnitude bounds the k largest.
//
// Source:      J. Fang, H. Fu, G. Yang, C.-J. Hsieh, "RedSync: reducing synchronization bandwidth
//              for distributed deep learning training system", JPDC 133, 2019, section 5.2.
// Deviations:  the search ends at the mean. It is skipped if an earlier step or, after the first, a
//              sample bounds the k-th magnitude, and on a device in every step. This saves time
//              only;
//              the selection is the same.
//
// With the mean M and the maximum X of |x|:
//   trim       the first of the thresholds M + r (X - M), r = 0.8, 0.6, 0.4, 0.2, 0, that at least
//              k elements exceed.
//   selection  the k largest of these elements. Without a threshold (X = M, or fewer than k above
//              the mean): the k largest of all.
#include <algorithm>
#include <iterator>

#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

class RedSync final : public WarmSparsifier {
 public:
  std::string_view name() const noexcept override { return "redsync"; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* state, Slot& slot) const override {
    const std::size_t k = aim.k;
    WarmBound* const bound = BoundOf(state);
    if (bound == nullptr || bound->unused()) {
      const std::uint32_t key = Search(context, input, info, k, slot);
      if (bound != nullptr) bound->Learn(key, 0, k, false);
      return;
    }
    SelectLargestWarm(context, input, info, k, bound, slot);
  }

 private:
  static std::uint32_t Search(const SelectContext& context, SelectInput& input,
                              const TensorInfo& info, std::size_t k, Slot& slot) {
    Statistics wanted;
    wanted.moments = kWantAbs;
    const Statistics statistics = Measure(context, input, info, wanted);
    const double range = statistics.MaxAbs() - statistics.MeanAbs();
    static constexpr double kRatios[] = {0.8, 0.6, 0.4, 0.2, 0};
    std::uint32_t keys[std::size(kRatios)];
    std::size_t counts[std::size(kRatios)];
    for (std::size_t i = 0; i < std::size(kRatios); ++i) {
      keys[i] = KeyAbove(statistics.MeanAbs() + kRatios[i] * range);
    }
    CountReaching(context, input, keys, counts);
    const auto* const enough = std::find_if(std::begin(counts), std::end(counts),
                                            [&](std::size_t count) { return count >= k; });
    if (enough == std::end(counts)) {
      ++context.counters->fallbacks;
      return SelectLargest(context, input, info, k, 0, slot);
    }
    const Candidates survivors = Collect(context, input, info, keys[enough - counts], kFineShift,
                                         CandidateCapacity(input.n, k));
    return SelectLargestAmong(context, input, info, survivors, k, slot);
  }
};

}  // namespace

SparsifierDescriptor RedSyncDescriptor() {
  return {.name = "redsync",
          .paper = "Fang et al., JPDC 2019",
          .exact_count = true,
          .contraction = KeptFraction,
          .deviations =
              "The search ends at the mean. After the first step, and on a device in every step, "
              "the last k-th magnitude or a sample bounds the search instead, which changes the "
              "time and not the selection.",
          .make = MakePlain<RedSync>};
}

}  // namespace sparfuse

// Selects by Deep Gradient Compression: takes a threshold from a sample of the magnitudes, and
// sends what reaches the threshold.
//
// Source:      Y. Lin et al., "Deep gradient compression", ICLR 2018; the rule is that of the
//              authors' published code (hierarchical selection, strided sample, bounds 1.3 and
//              0.8).
// Deviations:  an empty selection, or one that overflows its slot, becomes an exact top-k; the
//              option exact_trim.
//
// With n elements, K = ceil(n * density):
//   sample     every stride-th magnitude from a random start; at least sample_ratio * n of them,
//              and enough that two are expected above the threshold. Few elements: all of them.
//   threshold  the ceil(samples * density)-th largest of the sample; |x| >= threshold is selected.
//   too many   (above upper_bound * K): the K largest of those, or without `resample` the threshold
//              times upper_bound, and again.
//   too few    (below lower_bound * K): the threshold times lower_bound, and again.
//   at last    the first K by position, whatever their magnitudes. (exact_trim: the K largest.)
#include "core/sparsify/dgc/dgc.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/cpu.hpp"
#include "core/base/random_stream.hpp"
#include "core/sparsify/dgc/dgc_device.hpp"
#include "core/sparsify/dgc/dgc_rule.hpp"
#include "core/sparsify/scan/largest.hpp"

namespace sparfuse {
namespace {

class Dgc final : public Sparsifier {
 public:
  Dgc(const DgcOptions& options, std::uint64_t seed) : options_(options), seed_(seed) {}

  std::string_view name() const noexcept override { return "dgc"; }

  void Select(const SelectContext& context, const SelectSource& source, double density,
              const TensorInfo& info, SparsifierState* /*state*/, Slot& slot) const override {
    SelectInput input = BeginSelect(name(), context, source, density, info, slot);
    const std::size_t n = input.n;
    const std::size_t k = CeilProduct(n, density);
    RequireRoom(name(), info, slot, k);
    if (k == n) return SelectAll(context, input, info, slot);

    const DgcSample plan = PlanDgcSample(n, density, options_.sample_ratio);
    const Estimate estimate = FromSample(context, input, info, plan, density);
    float threshold = estimate.threshold;
    const std::size_t capacity = CandidateCapacity(n, k);
    if (plan.samples < n && SelectAboveCrowd(context, input, info, estimate, k, slot)) return;
    const auto collect = [&] {
      const std::uint32_t key = Key(threshold);
      return Collect(context, input, info, key, kFineShift, capacity, nullptr, key);
    };
    Candidates kept = collect();
    if (plan.samples < n) {
      const double upper = options_.upper_bound * static_cast<double>(k);
      const double lower = options_.lower_bound * static_cast<double>(k);
      for (std::int64_t i = 0; i < options_.max_iterations; ++i) {
        const auto count = static_cast<double>(kept.count);
        double factor = 0;
        if (count > upper && kept.count > k) {
          if (options_.resample) {
            SelectLargestAmong(context, input, info, kept, k, slot);
            return;
          }
          factor = options_.upper_bound;
        } else if (count < lower) {
          factor = options_.lower_bound;
        } else {
          break;
        }
        const float next = threshold * static_cast<float>(factor);
        // At zero and at the smallest denormals a threshold no longer moves.
        if (next == threshold || !std::isfinite(next)) break;
        threshold = next;
        Restore(input, kept);
        kept = collect();
      }
    }
    if (kept.count == 0) {
      ++context.counters->fallbacks;
      SelectLargest(context, input, info, k, 0, slot);
    } else if (kept.count > slot.capacity || !kept.stored) {
      ++context.counters->overflows;
      SelectLargestAmong(context, input, info, kept, k, slot);
    } else if (options_.exact_trim && kept.count > k) {
      SelectLargestAmong(context, input, info, kept, k, slot);
    } else {
      TakeFirst(input, kept, std::min(kept.count, k), slot);
    }
  }

  bool SelectsOnDevice() const noexcept override { return true; }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t /*n*/,
                                                   Device device) const override {
    return std::make_unique<DeviceWarmState>(device);
  }

  void SelectOnDevice(const DeviceContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state,
                      DeviceSlot& slot) const override {
    const std::size_t n = std::max<std::size_t>(source.gradient.size, 1);
    const std::size_t k = CeilProduct(n, density);
    const DeviceInput input = BeginSelectOnDevice(name(), context, source, density, info, slot, k);
    if (k == n) return SelectAllOnDevice(context, input, slot);
    SelectDgcOnDevice(context, input, density, info, options_, seed_, WarmWordsOf(state), slot);
  }

 private:
  struct Estimate {
    float threshold = 0;
    double reaching = 0;  // elements of x that are expected to reach it
  };

  // Where far more than upper_bound * K elements reach the threshold, because very many equal it,
  // and the K largest are sent: finds them without collecting those. Returns false, and nothing is
  // sent, where it is not so.
  bool SelectAboveCrowd(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                        const Estimate& estimate, std::size_t k, Slot& slot) const {
    const std::size_t capacity = CandidateCapacity(input.n, k);
    const double upper = options_.upper_bound * static_cast<double>(k);
    const double crowd = std::max(upper, static_cast<double>(capacity));
    if (!options_.resample || options_.max_iterations == 0) return false;
    if (estimate.reaching <= 2 * crowd) return false;
    const std::uint32_t key = Key(estimate.threshold);
    Candidates above = Collect(context, input, info, key + 1, kFineShift, capacity);
    above.ties_below = static_cast<std::size_t>(crowd);
    if (!MoreReach(input, key, above.ties_below)) {
      ++context.counters->fallbacks;
      return false;
    }
    SelectLargestAmong(context, input, info, above, k, slot);
    return true;
  }

  static std::uint32_t Key(float x) { return std::bit_cast<std::uint32_t>(x) & kAbsMask; }

  // The ceil(samples * density)-th largest magnitude of the sample.
  Estimate FromSample(const SelectContext& context, const SelectInput& input,
                      const TensorInfo& info, const DgcSample& plan, double density) const {
    const RandomStream stream(seed_, info.id, info.step);
    const auto room =
        WorkspaceArray<std::uint32_t>(*context.workspace, kUseSample, plan.samples + 1);
    std::size_t taken = 0;
    std::uint32_t largest = 0;
    const auto take = [&](std::size_t i) {
      const std::uint32_t key = Key(input.At(i));
      room[taken++] = key;
      largest = std::max(largest, key);
    };
    if (plan.stride == 1 && plan.samples == input.n) {
      for (std::size_t i = 0; i < input.n; ++i) take(i);
    } else if (options_.strided) {
      for (std::size_t i = stream.Below(plan.stride, 0); i < input.n; i += plan.stride) {
        if (taken == room.size()) break;
        take(i);
      }
    } else {
      for (std::size_t s = 0; s < plan.samples; ++s) take(stream.Below(input.n, s));
    }
    if (largest >= kInfinityKey) ThrowNotFinite(input, info);
    const auto keys = room.first(taken);
    const std::size_t rank = std::min(CeilProduct(plan.samples, density), taken);
    const Cut cut = FindCut(SelectKernelsFor(ActiveIsa()), keys, rank, 0, 31);
    std::uint32_t smallest = kInfinityKey;  // of those that reach the cut: the element of that rank
    for (const std::uint32_t key : keys) {
      smallest = std::min(smallest, key >= cut.key ? key : kInfinityKey);
    }
    const double reaching = static_cast<double>(cut.count) / static_cast<double>(taken);
    return {std::bit_cast<float>(smallest), reaching * static_cast<double>(input.n)};
  }

  DgcOptions options_;
  std::uint64_t seed_;
};

std::unique_ptr<Sparsifier> Make(const Options& resolved, std::uint64_t seed) {
  return std::make_unique<Dgc>(
      DgcOptions{DoubleOption(resolved, "sample_ratio"), DoubleOption(resolved, "upper_bound"),
                 DoubleOption(resolved, "lower_bound"), IntOption(resolved, "max_iterations"),
                 BoolOption(resolved, "resample"), BoolOption(resolved, "strided"),
                 BoolOption(resolved, "exact_trim")},
      seed);
}

}  // namespace

SparsifierDescriptor DgcDescriptor() {
  return {
      .name = "dgc",
      .paper = "Lin et al., ICLR 2018",
      .revision = 1,
      .exact_count = false,
      .index_shared = false,
      // Of log(count / k) over 240 selections at density 0.01: Gaussian and Laplace data, n =
      // 20,000, 100,000 and 500,000 (the test Dgc.SelectionModelHolds measures it).
      .selection_model = {-0.025, 0.053},
      // Cutting by position may drop the largest element of all.
      .contraction = [](std::span<const std::int64_t>, double) { return 0.0; },
      .deviations =
          "An empty selection, or one that overflows its slot, becomes an exact top-k. "
          "exact_trim = true keeps the largest instead of the first by position.",
      .options =
          {{.name = "sample_ratio",
            .fallback = 0.01,
            .min = 0.01,
            .max = 1,
            .choices = {},
            .meaning = "fraction of the elements that is sampled for the threshold"},
           {.name = "upper_bound",
            .fallback = 1.3,
            .min = 1.0001,
            .max = 100,
            .choices = {},
            .meaning =
                "counts above this multiple of K are corrected; also the step of correction"},
           {.name = "lower_bound",
            .fallback = 0.8,
            .min = 0.01,
            .max = 0.9999,
            .choices = {},
            .meaning =
                "counts below this multiple of K are corrected; also the step of correction"},
           {.name = "max_iterations",
            .fallback = std::int64_t{10},
            .min = 0,
            .max = 1000,
            .choices = {},
            .meaning = "most corrections of the threshold"},
           {.name = "resample",
            .fallback = true,
            .choices = {},
            .meaning = "too many: keep the K largest of them instead of raising the threshold"},
           {.name = "strided",
            .fallback = true,
            .choices = {},
            .meaning = "sample with a stride from a random start instead of at random positions"},
           {.name = "exact_trim",
            .fallback = false,
            .choices = {},
            .meaning =
                "at last keep the K largest instead of the first K by position (a deviation)"}},
      .make = Make,
      .reusable_threshold = true};
}

}  // namespace sparfuse

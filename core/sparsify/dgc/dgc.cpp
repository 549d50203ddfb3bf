// Selects by Deep Gradient Compression: takes a threshold from a sample of the magnitudes, and
// sends the elements that reach it.
//
// Source:      Y. Lin et al., "Deep gradient compression", ICLR 2018. The rule is taken from
//              the authors' published code (hierarchical selection, strided sample, bounds 1.3
//              and 0.8).
// Deviations:  an empty selection, or one that overflows its slot, becomes an exact top-k; the
//              option exact_trim.
//
// With n elements, K = ceil(n * density):
//   sample     every stride-th magnitude from a random start; at least sample_ratio * n of them,
//              and enough that two are expected above the threshold. Few elements: all of them.
//   threshold  the ceil(samples * density)-th largest of the sample; |x| >= threshold is selected.
//   too many   (above upper_bound * K): the K largest of them. Without `resample` the threshold is
//              multiplied by upper_bound, and the selection repeated.
//   too few    (below lower_bound * K): the threshold is multiplied by lower_bound, and the
//              selection repeated.
//   at last    the first K by position, whatever their magnitudes. (exact_trim: the K largest.)
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/cpu.hpp"
#include "core/base/random_stream.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/dgc/dgc_kernels.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"

namespace sparfuse {
namespace {

struct DgcOptions {
  double sample_ratio;
  double upper_bound;
  double lower_bound;
  std::int64_t max_iterations;
  bool resample;
  bool strided;
  bool exact_trim;
};

std::size_t CeilProduct(std::size_t n, double factor) {
  const auto product = static_cast<std::size_t>(std::ceil(static_cast<double>(n) * factor));
  return std::clamp<std::size_t>(product, 1, n);
}

struct DgcSample {
  std::size_t stride = 1;
  std::size_t samples = 0;  // nominal: a strided sample may hold one more
};

DgcSample PlanDgcSample(std::size_t n, double density, double sample_ratio) {
  const std::size_t wanted = CeilProduct(n, sample_ratio);
  const auto enough = static_cast<std::size_t>(std::ceil(2.0 / density));
  if (wanted == n || n <= enough) return {1, n};
  const std::size_t least = std::max(wanted, enough);
  // An odd stride, one more than a multiple of 32 to begin with, does not beat with the rows of a
  // matrix. The loop ends at stride 1 at the latest, which samples all n >= least elements.
  DgcSample plan;
  plan.stride = (n + 32 * least - 1) / (32 * least) * 32 + 1;
  while ((plan.samples = n / plan.stride) < least) plan.stride -= 8;
  return plan;
}

gpu::DgcRule RuleOf(std::size_t n, double density, const TensorInfo& info,
                    const DgcOptions& options, std::uint64_t seed, std::size_t capacity) {
  const std::size_t k = CeilProduct(n, density);
  const DgcSample sample = PlanDgcSample(n, density, options.sample_ratio);
  const RandomStream stream(seed, info.id, info.step);
  const bool all = sample.samples == n;
  const bool strided = all || options.strided;
  const std::uint64_t start = all || !strided ? 0 : stream.Below(sample.stride, 0);
  const std::size_t taken =
      strided ? (n - start + sample.stride - 1) / sample.stride : sample.samples;
  const std::size_t rank = std::min(CeilProduct(sample.samples, density), taken);
  return {.k = static_cast<std::uint32_t>(k),
          .rank = static_cast<std::uint32_t>(rank),
          .samples = static_cast<std::uint32_t>(taken),
          .stride = static_cast<std::uint32_t>(sample.stride),
          .start = static_cast<std::uint32_t>(start),
          .strided = strided,
          .corrected = !all,
          .resample = options.resample,
          .exact_trim = options.exact_trim,
          .most = static_cast<std::uint32_t>(std::min(capacity, CandidateCapacity(n, k))),
          .max_iterations = options.max_iterations,
          .upper_bound = options.upper_bound,
          .lower_bound = options.lower_bound,
          .stream = stream};
}

// Number of candidates that usually suffices to decide the rule.
std::size_t WantedBy(const gpu::DgcRule& rule, std::size_t n) {
  const double least = 1 + 6 / std::sqrt(static_cast<double>(rule.rank));
  const double wanted = std::max(least, rule.upper_bound) * static_cast<double>(rule.k) + 1;
  return wanted < static_cast<double>(n) ? static_cast<std::size_t>(wanted) : n;
}

class Dgc final : public DeviceScanSparsifier {
 public:
  Dgc(const DgcOptions& options, std::uint64_t seed) : options_(options), seed_(seed) {}

  std::string_view name() const noexcept override { return "dgc"; }

  std::size_t Kept(std::size_t n, double density) const override { return CeilProduct(n, density); }

  bool SelectsApart() const noexcept override { return true; }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* /*state*/, Slot& slot) const override {
    const gpu::DgcRule rule = RuleOf(input.n, aim.density, info, options_, seed_, slot.capacity);
    if (!SelectInOnePass(context, input, info, rule, slot)) {
      SelectByRule(context, input, info, rule, slot);
    }
  }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t /*n*/,
                                                   Device device) const override {
    return std::make_unique<DeviceWarmState>(device);
  }

  // Selects the same elements as SelectPart, bit for bit. Launches: one for kOneBlock elements or
  // fewer, else seven, three of which usually do nothing.
  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* state,
                          DeviceSlot& slot) const override {
    const Stream& stream = context.stream;
    WarmWords* const warm = WarmWordsOf(state);
    const gpu::DgcRule rule = RuleOf(input.n, aim.density, info, options_, seed_, slot.capacity);
    if (input.n <= kOneBlock) {
      const gpu::SendTarget target = gpu::TargetOf(input, slot);
      if (input.n <= kOneBlock / 4) {
        gpu::Launch(stream, 1, gpu::DgcOfSmall<256>{rule, input, target}, context.only_if);
      } else {
        gpu::Launch(stream, 1, gpu::DgcOfSmall<1024>{rule, input, target}, context.only_if);
      }
      return;
    }

    const std::size_t wanted = WantedBy(rule, input.n);
    auto* const words = context.workspace->Get<gpu::DgcWords>(stream, kUseStep, 1);
    DeviceScan scan = PrepareScan(context, input, info, rule.k, slot,
                                  {.wanted = wanted,
                                   .warm = warm,
                                   .capacity = CandidateCapacity(input.n, wanted),
                                   .own = reinterpret_cast<std::uint32_t*>(words),
                                   .own_size = sizeof(*words) / sizeof(std::uint32_t)});
    scan.warm = nullptr;  // the rule learns its bound itself
    if (!rule.strided) {
      constexpr std::size_t kAtOnce = gpu::DgcFromRandom::kEach * gpu::DgcFromRandom::kThreads;
      const std::size_t lists = std::clamp<std::size_t>(rule.samples / kAtOnce, 1, kMostSpans);
      gpu::Launch(stream, lists, gpu::DgcFromRandom{rule, input, scan.control, words, scan.list},
                  scan.active());
    }
    CollectOnDevice(context, scan);
    const std::size_t blocks = gpu::LookingBlocks(scan.capacity);
    gpu::Launch(stream, 2 * blocks,
                gpu::DgcDecide{rule, scan.control, words, gpu::CandidatesOf(scan), scan.list,
                               slot.report, warm, static_cast<std::uint32_t>(wanted)},
                scan.active());
    const std::size_t spans = std::min(kExactSpans, scan.plan.chunks);
    gpu::Launch(stream, (gpu::kKeyDigits + 1) * spans + 1,
                gpu::DgcFromAll{rule, scan.input.x(), input.n, static_cast<std::uint32_t>(spans),
                                scan.control, words, slot.report},
                &words->slow);
    RecollectOnDevice(context, scan);
    SendReaching(context, scan, slot);
  }

 private:
  struct Estimate {
    float threshold = 0;
    double reaching = 0;  // expected number of elements of x that reach it
  };

  // Applies the rule in one pass. A small sample of lines gives a bound that is expected to lie
  // below the threshold. The candidates then include the largest of the strided sample, the
  // threshold among them. This saves one read of a line for each element of the strided sample.
  // Returns false, with nothing sent, if the candidates do not suffice to decide.
  bool SelectInOnePass(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                       const gpu::DgcRule& rule, Slot& slot) const {
    if (!options_.strided || !rule.corrected || input.n < kParallelElements) return false;
    const std::size_t n = input.n;
    const std::size_t k = rule.k;
    const double least = 1 + 6 / std::sqrt(static_cast<double>(rule.rank));
    const double wanted = least * static_cast<double>(k);
    const std::size_t capacity = CandidateCapacity(n, k);
    if (wanted > 0.75 * static_cast<double>(capacity)) return false;
    const Bound bound = SampledBound(context, input, info, static_cast<std::size_t>(wanted) + 1, 1);
    if (bound.crowded) return false;
    const Candidates candidates =
        Collect(context, input, info, bound.key, kFineShift, capacity, nullptr, bound.kth);
    const Estimate estimate =
        candidates.stored ? FromCandidates(context, candidates, n, rule) : Estimate{};
    const std::uint32_t key = KeyOf(estimate.threshold);
    std::size_t count = 0;
    if (candidates.stored && key >= candidates.lo &&
        estimate.reaching <= 2 * CrowdOf(rule, capacity)) {
      count = CountCandidates(context, candidates, key);
    }
    const auto reach = static_cast<double>(count);
    const bool too_many =
        reach > rule.upper_bound * static_cast<double>(k) && count > k && rule.max_iterations > 0;
    if (count == 0 || reach < rule.lower_bound * static_cast<double>(k) ||
        (too_many && !rule.resample)) {
      Restore(input, candidates);
      return false;
    }
    if (count > slot.capacity && !too_many) ++context.counters->overflows;
    if (too_many || count > slot.capacity || (rule.exact_trim && count > k)) {
      SelectLargestAmong(context, input, info, candidates, k, slot);
    } else {
      SendCandidates(context, input, candidates, key, slot, k);
    }
    return true;
  }

  void SelectByRule(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                    const gpu::DgcRule& rule, Slot& slot) const {
    const Estimate estimate = FromSample(context, input, info, rule);
    const std::size_t capacity = CandidateCapacity(input.n, rule.k);
    if (rule.corrected && SelectAboveCrowd(context, input, info, rule, estimate, slot)) return;
    Candidates kept;
    const gpu::DgcDecision corrected =
        gpu::Correct(rule, KeyOf(estimate.threshold), [&](std::uint32_t key) {
          Restore(input, kept);
          kept = Collect(context, input, info, key, kFineShift, capacity, nullptr, key);
          return static_cast<std::uint32_t>(kept.count);
        });
    SlotReport counters;
    const gpu::DgcDecision decision = gpu::Settled(rule, corrected, &counters);
    context.counters->fallbacks += counters.fallbacks;
    context.counters->overflows += counters.overflows;
    if (!decision.largest) {
      TakeFirst(input, kept, std::min<std::size_t>(kept.count, rule.k), slot);
    } else if (kept.count == 0) {
      SelectLargest(context, input, info, rule.k, 0, slot);
    } else {
      SelectLargestAmong(context, input, info, kept, rule.k, slot);
    }
  }

  // Elements above this number are corrected, and too many to store.
  static double CrowdOf(const gpu::DgcRule& rule, std::size_t capacity) {
    return std::max(rule.upper_bound * static_cast<double>(rule.k), static_cast<double>(capacity));
  }

  // Handles a crowd: far more than upper_bound * K elements reach the threshold, because very many
  // equal it. The K largest are then sent, without collecting the crowd. Returns false, with
  // nothing sent, if there is no crowd.
  static bool SelectAboveCrowd(const SelectContext& context, SelectInput& input,
                               const TensorInfo& info, const gpu::DgcRule& rule,
                               const Estimate& estimate, Slot& slot) {
    const std::size_t capacity = CandidateCapacity(input.n, rule.k);
    const double crowd = CrowdOf(rule, capacity);
    if (!rule.resample || rule.max_iterations == 0) return false;
    if (estimate.reaching <= 2 * crowd) return false;
    const std::uint32_t key = KeyOf(estimate.threshold);
    Candidates above = Collect(context, input, info, key + 1, kFineShift, capacity);
    above.ties_below = static_cast<std::size_t>(crowd);
    if (!MoreReach(input, key, above.ties_below)) {
      ++context.counters->fallbacks;
      return false;
    }
    SelectLargestAmong(context, input, info, above, rule.k, slot);
    return true;
  }

  // Returns the ceil(samples * density)-th largest magnitude of the sample.
  static Estimate FromSample(const SelectContext& context, const SelectInput& input,
                             const TensorInfo& info, const gpu::DgcRule& rule) {
    const auto keys = WorkspaceArray<std::uint32_t>(*context.workspace, kUseSample, rule.samples);
    std::uint32_t largest = 0;
    for (std::size_t s = 0; s < keys.size(); ++s) {
      keys[s] = KeyOf(input.At(rule.Position(input.n, s)));
      largest = std::max(largest, keys[s]);
    }
    if (largest >= kInfinityKey) ThrowNotFinite(input, info);
    return FromKeys(keys, rule, input.n);
  }

  // Estimates from the candidates at the sampled positions. Returns a threshold of 0 if they are
  // fewer than rule.rank.
  static Estimate FromCandidates(const SelectContext& context, const Candidates& candidates,
                                 std::size_t n, const gpu::DgcRule& rule) {
    const auto room = WorkspaceArray<std::uint32_t>(
        *context.workspace, kUseSample, std::min<std::size_t>(rule.samples, candidates.count) + 1);
    // Tests divisibility of 32 bits by the stride exactly, in one multiplication.
    const std::uint64_t reciprocal = ~std::uint64_t{0} / rule.stride + 1;
    const std::uint64_t start = rule.start;
    const std::uint64_t last = std::uint64_t{rule.samples - 1} * rule.stride;  // after the start
    std::size_t found = 0;
    for (const CandidateSegment& run : candidates.runs()) {
      for (std::size_t j = run.offset; j < run.offset + run.count; ++j) {
        const std::uint64_t past = std::uint64_t{candidates.indices[j]} - start;
        room[found] = KeyOf(candidates.values[j]);  // overwritten unless it is counted
        found += static_cast<std::size_t>(past <= last && past * reciprocal < reciprocal);
      }
    }
    return found < rule.rank ? Estimate{} : FromKeys(room.first(found), rule, n);
  }

  // keys: of all sampled elements of n, or of the largest of them, at least rule.rank.
  static Estimate FromKeys(std::span<const std::uint32_t> keys, const gpu::DgcRule& rule,
                           std::size_t n) {
    const Cut cut = FindCut(SelectKernelsFor(ActiveIsa()), keys, rule.rank, 0, 31);
    std::uint32_t smallest = kInfinityKey;  // of keys that reach the cut: the element of that rank
    for (const std::uint32_t key : keys) {
      smallest = std::min(smallest, key >= cut.key ? key : kInfinityKey);
    }
    const double reaching = static_cast<double>(cut.count) / static_cast<double>(rule.samples);
    return {std::bit_cast<float>(smallest), reaching * static_cast<double>(n)};
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
      // log(count / k) over 240 selections at density 0.01 of Gaussian and Laplace data, n =
      // 20,000, 100,000 and 500,000 (measured by the test Dgc.SelectionModelHolds).
      .selection_model = {-0.025, 0.053},
      // The cut by position may drop the largest element.
      .contraction = [](std::span<const std::int64_t>, double) { return 0.0; },
      .deviations =
          "An empty selection, or one that overflows its slot, becomes an exact top-k. "
          "exact_trim = true keeps the largest instead of the first by position.",
      .options =
          {NumberOption("sample_ratio", 0.01, 0.01, 1,
                        "fraction of the elements that is sampled for the threshold"),
           {.name = "upper_bound",
            .fallback = 1.3,
            .min = 1.0001,
            .max = 100,
            .meaning =
                "counts above this multiple of K are corrected; also the step of correction"},
           {.name = "lower_bound",
            .fallback = 0.8,
            .min = 0.01,
            .max = 0.9999,
            .meaning =
                "counts below this multiple of K are corrected; also the step of correction"},
           WholeOption("max_iterations", 10, 0, 1000, "most corrections of the threshold"),
           FlagOption(
               "resample", true,
               "after too many elements: keep the K largest instead of raising the threshold"),
           FlagOption("strided", true,
                      "sample with a stride from a random start instead of at random positions"),
           {.name = "exact_trim",
            .fallback = false,
            .meaning =
                "in the end keep the K largest instead of the first K by position (a deviation)"}},
      .make = Make,
      .reusable_threshold = true};
}

}  // namespace sparfuse

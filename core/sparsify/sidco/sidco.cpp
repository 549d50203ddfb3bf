// Selects by SIDCo: takes thresholds from a sparsity-inducing distribution that is fitted in
// stages, each to the excess over the threshold of the stage before.
//
// Source:      A. M. Abdelmoniem, A. Elzanaty, M.-S. Alouini, M. Canini, "An efficient
//              statistical-based gradient compression technique for distributed training systems",
//              MLSys 2021, sections 2.2 to 2.4 and algorithm 1.
// Deviations:  sidco: stages after the first are fitted above the thresholds of the last step (in a
//              large tensor's first step, of a sample), with the fraction that survived them. If
//              the estimate selects over 2 % more or less than k, the k largest are sent.
//              sidco@paper: an empty selection, or one that overflows its slot, becomes an exact
//              top-k. Both: stages adapt for each tensor on its own.
//
// With a = |x|, density d, M stages, first density d1 (d itself if M = 1 or d >= first_ratio):
//   stage 1      the threshold t1 that a fraction d1 of the fitted distribution exceeds.
//   stage j > 1  the fit to a - t of the elements with a > t, t the threshold of the stage before;
//                densities fall by the same factor from stage to stage, down to d.
//   exponential  t = -mean ln(d1), then t + mean(a - t) ln(ratio of densities).
//   pareto       generalised, from mean and variance. gamma: the first stage from mean and mean
//                logarithm, the later ones as pareto.
//   adaptive     every 5 steps: one stage less if the estimates selected more than 1.2 k on
//                average, one more if less than 0.8 k.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base/cpu.hpp"
#include "core/sparsify/descriptors.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/sample.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"
#include "core/sparsify/scan_device/scan_sparsifier.hpp"
#include "core/sparsify/sidco/sidco_kernels.hpp"

namespace sparfuse {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct SidcoState final : SparsifierState {
  explicit SidcoState(std::size_t n) : bound(n) {}

  WarmBound bound;
  SidcoMemory memory;

  void Exchange(StateNumbers& numbers) override {
    numbers(memory.stages);
    numbers(memory.steps);
    numbers(memory.selected);
    numbers(memory.boundaries);
    numbers.All(std::span<std::uint32_t>(memory.keys));
  }
};

struct SidcoDeviceState final : SparsifierState {
  explicit SidcoDeviceState(Device device)
      : memory(1, device, "SIDCo's stages"), bound(1, device, "the warm start of a selection") {}
  Buffer<SidcoMemory> memory;  // all zero at first
  int most_stages = 1;         // upper bound: the host does not know the current number
  Buffer<WarmWords> bound;
};

// State of the last step, or of this one alone, after the words that the step's kernels share.
struct Words {
  gpu::SidcoStep* step;
  SidcoMemory* memory;
};
Words WordsOf(const DeviceContext& context, const SidcoDeviceState* state) {
  struct Both {
    gpu::SidcoStep step;
    SidcoMemory memory;
  };
  auto* const both = context.workspace->Get<Both>(context.stream, kUseStep, 1);
  return {&both->step, state == nullptr ? &both->memory : state->memory.data()};
}

class Sidco final : public DeviceScanSparsifier {
 public:
  Sidco(const SidcoOptions& options, bool corrected) : options_(options), corrected_(corrected) {}

  std::string_view name() const noexcept override { return corrected_ ? "sidco" : "sidco@paper"; }

  std::unique_ptr<SparsifierState> MakeState(std::size_t n) const override {
    auto state = std::make_unique<SidcoState>(n);
    state->memory.stages = options_.stages;
    return state;
  }

  void SelectPart(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Aim& aim, SparsifierState* state, Slot& slot) const override {
    const std::size_t k = aim.k;
    SidcoState stateless(input.n);
    stateless.memory.stages = options_.stages;
    SidcoState& own = state == nullptr ? stateless : *static_cast<SidcoState*>(state);
    const SidcoPlan plan(own.memory.stages, options_.first_ratio, aim.density);
    const double selected = corrected_ ? Corrected(context, input, info, plan, k, own, slot)
                                       : AsEstimated(context, input, info, plan, k, slot);
    if (options_.adaptive && !std::isnan(selected)) {
      own.memory.Adapt(selected / static_cast<double>(k), aim.density);
    }
  }

  std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t /*n*/,
                                                   Device device) const override {
    return std::make_unique<SidcoDeviceState>(device);
  }

  void SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, const Aim& aim, SparsifierState* state,
                          DeviceSlot& slot) const override {
    auto* const own = static_cast<SidcoDeviceState*>(state);
    const Words words = WordsOf(context, own);
    const gpu::SidcoSettings settings{options_.fit, static_cast<std::uint32_t>(options_.stages),
                                      options_.first_ratio, aim.density};
    const DeviceScan scan =
        corrected_ ? CorrectedOnDevice(context, input, info, settings, aim.k, words, own, slot)
                   : AsEstimatedOnDevice(context, input, info, settings, aim.k, words, own, slot);
    if (!options_.adaptive || own == nullptr) return;
    gpu::Launch(context.stream, 1,
                gpu::SidcoAdapt{aim.density, input.n, static_cast<std::uint32_t>(aim.k),
                                static_cast<std::uint32_t>(scan.capacity), words.memory, words.step,
                                scan.control},
                scan.active());
  }

 private:
  Statistics Wanted() const {
    Statistics wanted;
    wanted.moments = kWantAbs | (options_.fit == Fit::kExponential ? 0u : kWantSquares);
    wanted.logs = options_.fit == Fit::kGamma;
    wanted.tail_squares = options_.fit != Fit::kExponential;
    return wanted;
  }

  // Computes the thresholds of the first `count` stages, one pass over x each. Thresholds are NaN
  // from the first failed fit on.
  void FitStages(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                 const SidcoPlan& plan, int count, double* thresholds) const {
    std::fill_n(thresholds, count, kNaN);
    for (int stage = 0; stage < count; ++stage) {
      Statistics statistics = Wanted();
      if (stage == 0) {
        statistics = Measure(context, input, info, statistics);
        thresholds[0] = FirstThreshold(options_.fit, statistics, plan.first);
      } else {
        statistics.moments = 0;
        statistics.logs = false;
        statistics.tail_count = 1;
        statistics.tails[0].key = KeyAbove(thresholds[stage - 1]);
        statistics = Measure(context, input, info, statistics);
        thresholds[stage] = TailThreshold(options_.fit, statistics.tails[0], plan.factor);
      }
      if (std::isnan(thresholds[stage])) return;
    }
  }

  // Fits the stages to a sample of x. Returns false, without thresholds, if x is too small to gain
  // from it or a fit fails.
  bool FitStagesToSample(const SelectContext& context, const SelectInput& input,
                         const TensorInfo& info, const SidcoPlan& plan, int count,
                         double* thresholds) const {
    if (input.n < kFitSampledFrom) return false;
    const std::size_t lines = std::min(input.n / kFitSampledShare, kFitMostSampled) / kLine;
    const auto x = WorkspaceArray<float>(*context.workspace, kUseSample, lines * kLine);
    ForSampledLines(input.n, lines, info, [&](std::size_t i, std::size_t at) {
      for (std::size_t j = 0; j < kLine; ++j) x[i * kLine + j] = input.At(at + j);
    });
    const std::uint32_t largest = SelectKernelsFor(ActiveIsa()).add(x.data(), nullptr, x.size());
    if (largest >= kInfinityKey) ThrowNotFinite(input, info);
    SelectInput sample{x.data(), nullptr, x.size(), false};
    FitStages(context, sample, info, plan, count, thresholds);
    return !std::isnan(thresholds[count - 1]);
  }

  // Returns the number of elements that the estimate selects; NaN if the estimate is not a number.
  double AsEstimated(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                     const SidcoPlan& plan, std::size_t k, Slot& slot) const {
    double thresholds[kMaxStages];
    FitStages(context, input, info, plan, plan.stages, thresholds);
    const double estimate = thresholds[plan.stages - 1];
    if (std::isnan(estimate)) {
      ++context.counters->fallbacks;
      SelectLargest(context, input, info, k, 0, slot);
      return kNaN;
    }
    return static_cast<double>(TakeReaching(context, input, info, KeyAbove(estimate), k, slot));
  }

  double Corrected(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   const SidcoPlan& plan, std::size_t k, SidcoState& own, Slot& slot) const {
    SidcoMemory& memory = own.memory;
    const int boundaries = plan.stages - 1;
    if (memory.boundaries != boundaries && boundaries > 0) {
      double thresholds[kMaxStages];
      if (!FitStagesToSample(context, input, info, plan, boundaries, thresholds)) {
        FitStages(context, input, info, plan, boundaries, thresholds);
      }
      memory.Remember(thresholds, boundaries);
    }
    const bool known = boundaries == 0 || memory.boundaries == boundaries;
    Statistics statistics = Wanted();
    statistics.tail_count = known ? static_cast<std::size_t>(boundaries) : 0;
    for (std::size_t t = 0; t < statistics.tail_count; ++t) {
      statistics.tails[t].key = memory.keys[t];
    }
    const Candidates candidates =
        CollectAndMeasure(context, input, info, k, &own.bound, &statistics);
    const SidcoEstimate fitted(options_.fit, plan, statistics, known);
    memory.Remember(fitted.thresholds, boundaries);

    const double estimate = fitted.thresholds[boundaries];
    const std::uint32_t lo = candidates.lo;
    const auto count = static_cast<double>(
        SendCorrected(context, input, info, candidates, estimate, k, &own.bound, slot));
    if (std::isnan(estimate)) return kNaN;
    if (KeyAbove(estimate) >= lo) return count;
    return Extrapolated(count, lo, estimate, fitted.mean_excess, input.n);
  }

  // state: may be null.
  //
  // Cost: one pass over x. If the last step gives no boundaries between stages, one block fits them
  // to a sample. It fits them to all of x if x has fewer than kFitSampledFrom elements, or if the
  // sample of a larger x has too few nonzero elements.
  static DeviceScan CorrectedOnDevice(const DeviceContext& context, const DeviceInput& input,
                                      const TensorInfo& info, const gpu::SidcoSettings& settings,
                                      std::size_t k, const Words& words, SidcoDeviceState* state,
                                      const DeviceSlot& slot) {
    WarmWords* const warm = state == nullptr ? nullptr : state->bound.data();
    const std::size_t sampled =
        input.n < kFitSampledFrom ? 0 : std::min(input.n / kFitSampledShare, kFitMostSampled);
    DeviceScan scan = PrepareScan(context, input, info, k, slot, Correcting(input.n, k, warm));
    gpu::Launch(context.stream, 1,
                gpu::SidcoBegin{settings, state != nullptr, words.memory, words.step, input,
                                RandomStream(0, info.id, info.step),
                                static_cast<std::uint32_t>(sampled / kLine)},
                scan.active());
    CollectAndMeasureOnDevice<true>(
        context, scan, gpu::AimAtFit{settings, words.memory, words.step, CorrectionOf(scan)},
        settings.Measured(), &words.step->tails);
    RecollectOnDevice(context, scan);
    SendReaching(context, scan, slot);
    return scan;
  }

  // As in the paper. Cost: a pass over x for each stage, and one more.
  DeviceScan AsEstimatedOnDevice(const DeviceContext& context, const DeviceInput& input,
                                 const TensorInfo& info, const gpu::SidcoSettings& settings,
                                 std::size_t k, const Words& words, SidcoDeviceState* state,
                                 const DeviceSlot& slot) const {
    int most = options_.stages;
    if (options_.adaptive && state != nullptr) {
      const int adapted = static_cast<int>(std::ceil(-std::log2(settings.density)));
      state->most_stages = std::clamp(adapted, state->most_stages, kMaxStages);
      most = std::max(most, state->most_stages);
    }
    DeviceInput x = input;
    for (int stage = 0; stage < most; ++stage) {
      DeviceContext pass = context;
      ScanOptions of_pass = NothingCollected();
      if (stage > 0) {
        pass.only_if = &words.step->wanted[stage];
      } else {
        of_pass.own = words.step->wanted;
        of_pass.own_size = std::size(words.step->wanted);
      }
      DeviceScan scan = PrepareScan(pass, x, info, k, slot, of_pass);
      if (stage == 0) {
        gpu::Launch(context.stream, 1,
                    gpu::SidcoPaperBegin{settings, state != nullptr, words.memory, words.step},
                    scan.active());
      }
      const gpu::FitStage fit{settings, stage, words.memory, words.step};
      CollectAndMeasureOnDevice<true>(pass, scan, fit, settings.Measured(), &words.step->tails);
      x = scan.input;
    }
    DeviceScan scan =
        PrepareScan(context, x, info, k, slot, Reaching(input.n, k, &words.step->key, slot));
    CollectOnDevice(context, scan);
    SendReaching(context, scan, slot);
    return scan;
  }

  SidcoOptions options_;
  bool corrected_;
};

SparsifierDescriptor Descriptor(bool corrected) {
  return {
      .name = corrected ? "sidco" : "sidco@paper",
      .paper = "Abdelmoniem et al., MLSys 2021",
      .revision = corrected ? 3 : 1,
      // The first pair is measured on random data and a small network's gradients
      // (SelectionModels.OfCorrectedEstimatesHold).
      .selection_model = corrected ? SelectionModel{0, 0.004} : SelectionModel{-0.311, 1.096},
      .contraction = corrected ? CorrectedFraction : OneElement,
      .deviations =
          corrected ? "Stages after the first are fitted above the thresholds of the last step (in "
                      "a large tensor's first step, of a sample), with the fraction that survived "
                      "them. If the estimate selects a count more than 2 % off k, the k largest "
                      "are sent. Stages adapt for each tensor on its own."
                    : "An empty selection, or one that overflows its slot, becomes an exact top-k. "
                      "Stages adapt for each tensor on its own.",
      .options = {ChoiceOption("fit", "exponential", {"exponential", "pareto", "gamma"},
                               "distribution of the magnitudes: exponential, generalised Pareto, "
                               "or gamma with Pareto in the later stages"),
                  WholeOption("stages", 1, 1, kMaxStages,
                              "fits one above the other, in the first steps"),
                  FlagOption("adaptive", true,
                             "every 5 steps a stage more or less if the estimates selected below "
                             "0.8 k or above 1.2 k"),
                  NumberOption("first_ratio", 0.25, 0.01, 0.9,
                               "density after the first of several stages")},
      .make = [corrected](const Options& resolved, std::uint64_t) -> std::unique_ptr<Sparsifier> {
        const std::string& fit = StringOption(resolved, "fit");
        return std::make_unique<Sidco>(
            SidcoOptions{fit == "gamma"    ? Fit::kGamma
                         : fit == "pareto" ? Fit::kPareto
                                           : Fit::kExponential,
                         static_cast<int>(IntOption(resolved, "stages")),
                         BoolOption(resolved, "adaptive"), DoubleOption(resolved, "first_ratio")},
            corrected);
      },
      .aliases =
          corrected ? std::vector<std::string_view>{"sidco-exp"} : std::vector<std::string_view>{},
      .unbounded_count = !corrected,
      .reusable_threshold = true};
}

}  // namespace

SparsifierDescriptor SidcoDescriptor() { return Descriptor(true); }

SparsifierDescriptor SidcoPaperDescriptor() { return Descriptor(false); }

}  // namespace sparfuse

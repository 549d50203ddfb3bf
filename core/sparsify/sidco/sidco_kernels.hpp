// Computes SIDCo's fits, alike on the host and on devices, and decides the selection on a device
// (sidco.cpp describes the method).
//
// Expected, not measured, on an H200, warm, for n = 25.6M: SidcoBegin and SidcoAdapt take 2 us each
// beside the passes of scan_kernels.hpp. To fit boundaries, SidcoBegin takes some 15 us a stage for
// 65536 sampled elements: one multiprocessor loads 16 times 16 kB and sums them. One block does
// that alone while the rest waits, because it happens only in a tensor's first steps and after a
// change of its stages. If a sample cannot be fitted, all of x is fitted, as on the host. That
// takes some 8 ms a stage; for an x of zeros it happens for one stage in every step. Many blocks
// for it would cost one more launch in all steps.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan/quantiles.hpp"
#include "core/sparsify/scan/sample.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/statistics_kernels.hpp"

namespace sparfuse {

enum class Fit { kExponential, kPareto, kGamma };

struct SidcoOptions {
  Fit fit = Fit::kExponential;
  int stages = 1;
  bool adaptive = true;
  double first_ratio = 0.25;
};

inline constexpr int kMaxStages = static_cast<int>(kMaxTails) + 1;
inline constexpr int kAdaptSteps = 5;

// The boundaries between stages are fitted to a sample if a tensor has kFitSampledFrom elements or
// more; for smaller ones, passes over all of x are as fast. The sample has one element in
// kFitSampledShare, but at most kFitMostSampled.
inline constexpr std::size_t kFitSampledFrom = std::size_t{1} << 18;
inline constexpr std::size_t kFitSampledShare = 16;
inline constexpr std::size_t kFitMostSampled = 65536;

// Densities after each stage, the first one being stage 0.
struct SidcoPlan {
  int stages = 1;
  double first = 1;
  double factor = 1;  // from stage to stage

  SPARFUSE_HOST_DEVICE SidcoPlan(int wanted, double first_ratio, double density) {
    const bool one = wanted == 1 || density >= first_ratio;
    stages = one ? 1 : wanted;
    first = one ? density : first_ratio;
    if (!one) factor = std::pow(density / first_ratio, 1.0 / (wanted - 1));
  }
  SPARFUSE_HOST_DEVICE double Density(int stage) const { return first * std::pow(factor, stage); }
};

// The memory for one tensor, in addition to its bound.
struct SidcoMemory {
  int stages = 1;
  int steps = 0;        // since the stages adapted
  double selected = 0;  // sum over those steps of the estimate's count, in units of k
  int boundaries = -1;  // number of `keys` of the last step: all stages but the last; -1: unknown
  std::uint32_t keys[kMaxTails] = {};

  SPARFUSE_HOST_DEVICE void Adapt(double ratio, double density) {
    selected += ratio;
    if (++steps < kAdaptSteps) return;
    const double mean = selected / kAdaptSteps;
    const int most = Clamp(static_cast<int>(std::ceil(-std::log2(density))), kMaxStages);
    if (mean > 1.2) --stages;
    if (mean < 0.8) ++stages;
    stages = Clamp(stages, most);
    steps = 0;
    selected = 0;
  }

  SPARFUSE_HOST_DEVICE void Remember(const double* thresholds, int count) {
    boundaries = count;
    for (int b = 0; b < count; ++b) {
      if (std::isnan(thresholds[b])) {
        boundaries = -1;
        return;
      }
      keys[b] = KeyAbove(thresholds[b]);
    }
  }

 private:
  SPARFUSE_HOST_DEVICE static int Clamp(int value, int most) {
    return value < 1 ? 1 : value > most ? most : value;
  }
};

// Estimates the threshold that a fraction `ratio` of all elements exceeds.
SPARFUSE_HOST_DEVICE double FirstThreshold(Fit fit, const Statistics& all, double ratio) {
  const double mean = all.MeanAbs();
  if (fit == Fit::kExponential) return -mean * std::log(ratio);
  if (fit == Fit::kPareto) {
    return ParetoQuantile(mean, SampleVariance(all.n, all.sum_abs, all.sum_squares), ratio);
  }
  // Zeros count as the smallest step of a double relative to the norm, as in the published code.
  const double zero = std::numeric_limits<double>::epsilon() * std::sqrt(all.sum_squares);
  const auto zeros = static_cast<double>(all.n - all.log_count);
  const double logs = all.sum_log + (zeros > 0 ? zeros * std::log(zero) : 0.0);
  const double shape = GammaShape(std::log(mean) - logs / static_cast<double>(all.n));
  return SmallGammaQuantile(shape, mean / shape, ratio);
}

SPARFUSE_HOST_DEVICE double Location(const Tail& tail) {
  return static_cast<double>(std::bit_cast<float>(tail.key));
}

SPARFUSE_HOST_DEVICE double MeanExcess(const Tail& tail) {
  return tail.sums.sum_abs / static_cast<double>(tail.sums.count) - Location(tail);
}

// Estimates the threshold that a fraction `ratio` of a tail's elements exceeds. NaN for fewer than
// two elements.
SPARFUSE_HOST_DEVICE double TailThreshold(Fit fit, const Tail& tail, double ratio) {
  if (tail.sums.count < 2) return std::numeric_limits<double>::quiet_NaN();
  const double mean = MeanExcess(tail);
  if (fit == Fit::kExponential) return Location(tail) - mean * std::log(ratio);
  const double variance = SampleVariance(tail.sums.count, tail.sums.sum_abs, tail.sums.sum_squares);
  return Location(tail) + ParetoQuantile(mean, variance, ratio);
}

// The thresholds of all stages, from one measurement with the boundaries of the step before.
struct SidcoEstimate {
  double thresholds[kMaxStages];
  double mean_excess;  // of the last stage

  // known: `statistics` has the tails above the boundaries. If false, all thresholds are NaN.
  SPARFUSE_HOST_DEVICE SidcoEstimate(Fit fit, const SidcoPlan& plan, const Statistics& statistics,
                                     bool known)
      : mean_excess(statistics.MeanAbs()) {
    for (double& threshold : thresholds) {
      threshold = std::numeric_limits<double>::quiet_NaN();
    }
    if (!known) return;
    thresholds[0] = FirstThreshold(fit, statistics, plan.first);
    for (int stage = 1; stage < plan.stages; ++stage) {
      const Tail& tail = statistics.tails[stage - 1];
      const double survived =
          static_cast<double>(tail.sums.count) / static_cast<double>(statistics.n);
      thresholds[stage] = TailThreshold(fit, tail, plan.Density(stage) / survived);
      mean_excess = MeanExcess(tail);
    }
  }
};

// Estimates how many of n elements exceed a threshold below all candidates, which are the `count`
// elements with key >= lo. It assumes an exponential tail between the threshold and lo.
SPARFUSE_HOST_DEVICE double Extrapolated(double count, std::uint32_t lo, double threshold,
                                         double mean_excess, std::size_t n) {
  const double gap = static_cast<double>(std::bit_cast<float>(lo)) - threshold;
  const double more = count * std::exp(gap / mean_excess);
  const auto all = static_cast<double>(n);
  return all < more ? all : more;
}

}  // namespace sparfuse

namespace sparfuse::gpu {

struct SidcoSettings {
  Fit fit = Fit::kExponential;
  std::uint32_t stages = 1;  // in the first steps
  double first_ratio = 1;
  double density = 1;

  SPARFUSE_HOST_DEVICE Wanted Measured() const {
    return {fit != Fit::kExponential, fit == Fit::kGamma};
  }
  SPARFUSE_DEVICE SidcoPlan Plan(const SidcoMemory& memory) const {
    return SidcoPlan(memory.stages, first_ratio, density);
  }
};

// The data that the kernels of one step pass to one another.
struct SidcoStep {
  TailKeys tails;  // the known boundaries
  std::uint32_t known;
  double estimate;
  double mean_excess;
  // For sidco@paper: whether the pass of each stage is wanted, zero before the step, and the key of
  // the threshold so far.
  std::uint32_t wanted[kMaxStages + 1];
  std::uint32_t key;
};

// Initialises the memory for a first step if it is all zero or nothing is remembered.
SPARFUSE_DEVICE void StartMemory(const SidcoSettings& settings, bool remembered,
                                 SidcoMemory* memory) {
  if (remembered && memory->stages > 0) return;
  *memory = SidcoMemory();
  memory->stages = static_cast<int>(settings.stages);
}

// Runs before the pass. Finds the boundaries of stages, from the step before or by a fit. One
// block.
struct SidcoBegin {
  static constexpr int kThreads = 512;
  static constexpr unsigned kEach = 8;  // loads of a thread in flight together
  struct Shared {
    std::uint32_t lines[kFitMostSampled / kLine];  // of the sample
    double values[ThreadSums<true>::kValues];
    double thresholds[kMaxStages];
    TailKeys tails;
    std::uint32_t max_key;
    std::uint32_t fit;
  };

  SidcoSettings settings;
  bool remembered;  // `memory` is from the step before, or all zero
  SidcoMemory* memory;
  SidcoStep* step;
  DeviceInput source;
  RandomStream stream;  // of the sample
  std::uint32_t lines;  // of the sample; 0: all of x is fitted

  SPARFUSE_DEVICE void operator()(auto& block, Shared& shared) const {
    if (block.thread() == 0) {
      StartMemory(settings, remembered, memory);
      const int boundaries = settings.Plan(*memory).stages - 1;
      shared.fit = boundaries > 0 && memory->boundaries != boundaries ? 1 : 0;
    }
    block.Sync();
    const SidcoPlan plan = settings.Plan(*memory);
    const int boundaries = plan.stages - 1;
    if (shared.fit != 0) {
      FindSampledLines(block, stream, source.n, lines, shared.lines);
      if (!(lines > 0 && Fit(block, shared, plan, std::uint64_t{lines} * kLine, true))) {
        Fit(block, shared, plan, source.n, false);
      }
      if (block.thread() == 0) memory->Remember(shared.thresholds, boundaries);
    }
    if (block.thread() != 0) return;
    const bool known = boundaries == 0 || memory->boundaries == boundaries;
    step->known = known ? 1 : 0;
    step->tails.count = known ? static_cast<std::uint32_t>(boundaries) : 0;
    for (int t = 0; known && t < boundaries; ++t) step->tails.keys[t] = memory->keys[t];
  }

 private:
  // Fits the thresholds of all stages but the last to `count` elements. From the first stage whose
  // fit fails, thresholds are NaN. Returns whether all fits succeeded.
  SPARFUSE_DEVICE bool Fit(auto& block, Shared& shared, const SidcoPlan& plan, std::uint64_t count,
                           bool sampled) const {
    const int boundaries = plan.stages - 1;
    block.Sync();
    for (int b = static_cast<int>(block.thread()); b < boundaries; b += kThreads) {
      shared.thresholds[b] = std::numeric_limits<double>::quiet_NaN();
    }
    block.Sync();
    for (int stage = 0; stage < boundaries; ++stage) {
      if (stage > 0 && std::isnan(shared.thresholds[stage - 1])) break;
      if (block.thread() == 0 && stage > 0) {
        shared.tails.count = 1;
        shared.tails.keys[0] = KeyAbove(shared.thresholds[stage - 1]);
      }
      block.Sync();
      // No element is above the threshold, e.g. because all are equal.
      if (stage > 0 && shared.tails.keys[0] > shared.max_key) break;
      ThreadSums<true> sums(settings.Measured(), stage == 0 ? nullptr : &shared.tails);
      for (std::uint64_t i = block.thread(); i < count; i += kEach * kThreads) {
        float x[kEach];
        source.Load<kEach>(
            [&](unsigned e) {
              const std::uint64_t at = i + e * kThreads < count ? i + e * kThreads : i;
              return sampled ? SampledElement(shared.lines, static_cast<std::uint32_t>(at)) : at;
            },
            x);
        for (unsigned e = 0; e < kEach; ++e) {
          if (i + e * kThreads < count) sums.Add(x[e], KeyOf(x[e]));
        }
      }
      sums.Sum(block, [&](int value, double sum) {
        if (block.thread() == 0) shared.values[value] = sum;
      });
      if (block.thread() == 0) {
        const Statistics statistics =
            sums.Of(count, [&](int value) { return shared.values[value]; });
        shared.max_key = statistics.max_key;
        shared.thresholds[stage] =
            stage == 0 ? FirstThreshold(settings.fit, statistics, plan.first)
                       : TailThreshold(settings.fit, statistics.tails[0], plan.factor);
      }
      block.Sync();
    }
    return !std::isnan(shared.thresholds[boundaries - 1]);
  }
};

// Runs at the end of the pass. Estimates the threshold.
struct AimAtFit {
  SidcoSettings settings;
  SidcoMemory* memory;
  SidcoStep* step;
  ThresholdCorrection correction;

  SPARFUSE_DEVICE void operator()(auto& block, const Statistics& statistics) const {
    if (block.thread() == 0) {
      const SidcoPlan plan = settings.Plan(*memory);
      const SidcoEstimate fitted(settings.fit, plan, statistics, step->known != 0);
      memory->Remember(fitted.thresholds, plan.stages - 1);
      step->estimate = fitted.thresholds[plan.stages - 1];
      step->mean_excess = fitted.mean_excess;
    }
    block.Sync();
    correction.Apply(block, step->estimate);
  }
};

// Runs after SendReaching. Adapts the stages of the next steps to the number of elements that the
// estimate selects.
struct SidcoAdapt {
  static constexpr int kThreads = 32;

  double density;
  std::uint64_t n;
  std::uint32_t k;
  std::uint32_t capacity;  // of candidates
  SidcoMemory* memory;
  const SidcoStep* step;
  const ScanControl* control;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0 || std::isnan(step->estimate)) return;
    const std::uint32_t lo = control->lo;
    const bool stored = control->count <= capacity;
    double selected = stored ? control->reaching : control->count;
    if (control->key < lo) {
      selected = Extrapolated(control->count, lo, step->estimate, step->mean_excess, n);
    }
    memory->Adapt(selected / k, density);
  }
};

// --- As in the paper: a pass for each stage ----------------------------------------------------

// Runs before the first pass.
struct SidcoPaperBegin {
  static constexpr int kThreads = 32;

  SidcoSettings settings;
  bool remembered;
  SidcoMemory* memory;
  SidcoStep* step;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    if (block.thread() != 0) return;
    StartMemory(settings, remembered, memory);
    step->tails.count = 0;
  }
};

struct FitStage {
  SidcoSettings settings;
  int stage;
  const SidcoMemory* memory;
  SidcoStep* step;

  SPARFUSE_DEVICE void operator()(auto& block, const Statistics& statistics) const {
    if (block.thread() != 0) return;
    const SidcoPlan plan = settings.Plan(*memory);
    const double threshold = stage == 0
                                 ? FirstThreshold(settings.fit, statistics, plan.first)
                                 : TailThreshold(settings.fit, statistics.tails[0], plan.factor);
    const bool number = !std::isnan(threshold);
    step->estimate = threshold;
    step->key = number ? KeyAbove(threshold) : kInfinityKey;
    step->tails.count = 1;
    step->tails.keys[0] = step->key;
    step->wanted[stage + 1] = number && stage + 1 < plan.stages ? 1 : 0;
  }
};

}  // namespace sparfuse::gpu

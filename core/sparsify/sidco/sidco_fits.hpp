// Computes SIDCo's stages from measured statistics, alike on the host and on devices, and holds
// what SIDCo remembers from step to step. The method is in sidco.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/sparsify/scan/quantiles.hpp"
#include "core/sparsify/scan/tensor_statistics.hpp"

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

// The boundaries between stages are fitted to a sample of one element in kFitSampledShare,
// kFitMostSampled at most, of tensors from kFitSampledFrom elements on; below, passes over all of x
// are as fast.
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

// Of one tensor, beside its bound.
struct SidcoMemory {
  int stages = 1;
  int steps = 0;        // since the stages adapted
  double selected = 0;  // sum over those steps of what the estimate selects, in units of k
  int boundaries = -1;  // thresholds of all stages but the last, from the last step; -1: unknown
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

// The threshold that a fraction `ratio` of all elements exceeds.
SPARFUSE_HOST_DEVICE double FirstThreshold(Fit fit, const Statistics& all, double ratio) {
  const double mean = all.MeanAbs();
  if (fit == Fit::kExponential) return -mean * std::log(ratio);
  if (fit == Fit::kPareto) {
    return ParetoQuantile(mean, SampleVariance(all.n, all.sum_abs, all.sum_squares), ratio);
  }
  // Zeros count as the smallest step of a double beside the norm, as in the published code.
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

// The threshold that a fraction `ratio` of the elements of a tail exceeds. NaN for fewer than two.
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

  // known: the tails of `statistics` are those of the boundaries; else no threshold is a number.
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

// How many of n elements a threshold selects that is below all candidates, the `count` elements
// with key >= lo: as many more as an exponential tail has.
SPARFUSE_HOST_DEVICE double Extrapolated(double count, std::uint32_t lo, double threshold,
                                         double mean_excess, std::size_t n) {
  const double gap = static_cast<double>(std::bit_cast<float>(lo)) - threshold;
  const double more = count * std::exp(gap / mean_excess);
  const auto all = static_cast<double>(n);
  return all < more ? all : more;
}

}  // namespace sparfuse

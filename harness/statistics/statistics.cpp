#include "harness/statistics/statistics.hpp"

#include <algorithm>
#include <array>

#include "core/sparsify/scan/statistics.hpp"

namespace sparfuse::harness {

namespace {

constexpr double kQuantile = 0.5 + kConfidence / 2;

// Moments of the logarithms of values, in units of the first of them: equal values, such as counts,
// stay exact and have no variance.
struct Moments {
  double unit = 1, mean = 0, variance = 0;
  double n = 0;

  double log_mean() const { return mean + std::log(unit); }
};

Moments MomentsOf(std::span<const double> values) {
  Moments found{.unit = values.front(), .n = static_cast<double>(values.size())};
  for (const double value : values) found.mean += std::log(value / found.unit) / found.n;
  if (values.size() < 2) return found;
  for (const double value : values)
    found.variance += std::pow(std::log(value / found.unit) - found.mean, 2) / (found.n - 1);
  return found;
}

// Half the width of the interval.
double HalfWidth(const Moments& a, const Moments& b) {
  const double variance = a.variance / a.n + b.variance / b.n;
  if (variance == 0) return 0;
  return StudentTQuantile(kQuantile, std::min(a.n, b.n) - 1) * std::sqrt(variance);
}

std::size_t BlocksNeeded(Moments a, Moments b, double away, double margin) {
  const double narrow = std::max(away, margin - away);
  constexpr double kMost = 1e6;
  double low = std::max(a.n, b.n), high = low;
  const auto decides = [&](double blocks) {
    a.n = b.n = blocks;
    return HalfWidth(a, b) < narrow;
  };
  while (!decides(high)) {
    if (high > kMost) return static_cast<std::size_t>(kMost);
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (decides(middle) ? high : low) = middle;
  }
  return static_cast<std::size_t>(high);
}

}  // namespace

double Median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

Estimate MedianEstimate(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  Estimate estimate{Median(sorted), 0};
  if (n < 2) return estimate;
  // Each value is below the true median with probability 1/2. The binomial probability of k is that
  // of sorted[k] being the first value above the median.
  const auto probability = [n](std::size_t k) {
    const auto size = static_cast<double>(n);
    const auto below = static_cast<double>(k);
    return std::exp(std::lgamma(size + 1) - std::lgamma(below + 1) - std::lgamma(size - below + 1) -
                    size * std::log(2.0));
  };
  std::size_t from = 0;
  double outside = 2 * probability(0);  // outside of sorted[from] to sorted[n - 1 - from]
  while (outside + 2 * probability(from + 1) <= 1 - kConfidence) {
    ++from;
    outside += 2 * probability(from);
  }
  estimate.standard_error =
      0.5 * (sorted[n - 1 - from] - sorted[from]) / TwoSidedNormalQuantile(outside);
  return estimate;
}

std::optional<Interval> LogInterval(std::span<const double> values, double confidence) {
  const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
  if (values.empty() || !std::ranges::all_of(values, positive)) return std::nullopt;
  const Moments found = MomentsOf(values);
  const double center = found.unit * std::exp(found.mean);
  Interval interval{center, center, center, values.size()};
  if (values.size() < 2) return interval;
  const double half =
      StudentTQuantile(0.5 + confidence / 2, found.n - 1) * std::sqrt(found.variance / found.n);
  interval.low = found.unit * std::exp(found.mean - half);
  interval.high = found.unit * std::exp(found.mean + half);
  return interval;
}

std::optional<Interval> MeanInterval(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  const bool equal = std::equal(values.begin() + 1, values.end(), values.begin());
  double mean = equal ? values.front() : 0;  // avoids rounding if all are equal
  for (const double value : values) mean += equal ? 0 : value / n;
  Interval interval{mean, mean, mean, values.size()};
  if (equal) return interval;
  double variance = 0;
  for (const double value : values) variance += std::pow(value - mean, 2) / (n - 1);
  const double half = StudentTQuantile(kQuantile, n - 1) * std::sqrt(variance / n);
  interval.low = mean - half;
  interval.high = mean + half;
  return interval;
}

Interval BandOfDraws(double value, std::vector<double> draws, double scale) {
  std::ranges::sort(draws);
  const std::size_t apart = draws.size() > 2 ? 1 : 0;
  return {value, std::min(value, scale * draws[apart]),
          std::max(value, scale * draws[draws.size() - 1 - apart]), 1};
}

std::vector<double> OfBlocks(const std::map<int, double>& by_block) {
  std::vector<double> values;
  for (const auto& [block, value] : by_block) values.push_back(value);
  return values;
}

std::map<int, double> RatiosByBlock(const std::map<int, double>& ours,
                                    const std::map<int, double>& other) {
  std::map<int, double> ratios;
  for (const auto& [block, value] : ours) {
    const auto pair = other.find(block);
    if (pair != other.end() && value > 0 && pair->second > 0) ratios[block] = value / pair->second;
  }
  return ratios;
}

double RatioOfRounds(std::span<const double> ours, std::span<const double> other) {
  double sum = 0;
  for (std::size_t round = 0; round < ours.size(); ++round) {
    sum += std::log(ours[round] / other[round]);
  }
  return std::exp(sum / static_cast<double>(ours.size()));
}

std::optional<Interval> PairedDifference(const std::map<int, double>& ours,
                                         const std::map<int, double>& other) {
  std::vector<double> differences;
  for (const auto& [block, value] : ours) {
    const auto pair = other.find(block);
    if (pair != other.end()) differences.push_back(value - pair->second);
  }
  return MeanInterval(differences);
}

std::string_view VerdictName(Verdict verdict) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "reproduced",      "direction only", "not reproduced",
      "inconclusive",    "not run",        "not decided: disturbed",
      kTargetNotReached, "invalid",        "consistent with the paper",
      "holds",           "does not hold"};
  return kNames.at(static_cast<std::size_t>(verdict));
}

Verdict Judge(const std::optional<Interval>& ratio, double stated, bool measured, bool exact) {
  if (!ratio) return Verdict::kNotRun;
  if (!ratio->has_bounds() && !exact) return Verdict::kInconclusive;
  const bool undecided = ratio->low <= 1 && ratio->high >= 1;
  // The band of a modelled ratio shows the uncertainty of the cluster, not of the ratio. Its value
  // alone decides whether it equals the stated ratio.
  if (exact && undecided && ratio->has_bounds()) return Verdict::kInconclusive;
  const double low = exact ? ratio->value : ratio->low;
  const double high = exact ? ratio->value : ratio->high;
  if (low >= stated * (1 - kReproducedWithin) && high <= stated * (1 + kReproducedWithin)) {
    return measured ? Verdict::kReproduced : Verdict::kConsistentModelled;
  }
  if (undecided) return Verdict::kInconclusive;
  return (ratio->value > 1) == (stated > 1) ? Verdict::kDirectionOnly : Verdict::kNotReproduced;
}

Verdict JudgeDifference(const std::optional<Interval>& difference, double stated, bool measured,
                        bool exact) {
  if (!difference) return Verdict::kNotRun;
  if (!difference->has_bounds() && !exact) return Verdict::kInconclusive;
  if (difference->low <= 0 && difference->high >= 0) return Verdict::kInconclusive;
  if (difference->low <= stated && difference->high >= stated) {
    return measured ? Verdict::kReproduced : Verdict::kConsistentModelled;
  }
  return (difference->value > 0) == (stated > 0) ? Verdict::kDirectionOnly
                                                 : Verdict::kNotReproduced;
}

Verdict JudgeBound(const std::optional<Interval>& ours, Bound bound, double slack, bool exact) {
  if (!ours) return Verdict::kNotRun;
  double low = ours->low;
  double high = ours->high;
  double limit = bound.value;
  if (bound.comparison == Comparison::kEquals) {
    return low == limit && high == limit ? Verdict::kHolds : Verdict::kDoesNotHold;
  }
  if (!ours->has_bounds() && !exact) return Verdict::kInconclusive;
  if (bound.comparison == Comparison::kMore || bound.comparison == Comparison::kAtLeast) {
    low = -ours->high;  // mirrored: below, only an upper bound is judged
    high = -ours->low;
    limit = -bound.value;
  }
  const bool strict =
      bound.comparison == Comparison::kLess || bound.comparison == Comparison::kMore;
  if (strict ? low >= limit : low > limit) return Verdict::kDoesNotHold;
  const bool holds = strict ? high < limit : high <= limit + slack;
  return holds ? Verdict::kHolds : Verdict::kInconclusive;
}

Contrast ContrastOf(std::span<const double> first, std::span<const double> second, double within) {
  const Moments a = MomentsOf(first), b = MomentsOf(second);
  const double away = a.log_mean() - b.log_mean();
  Contrast contrast;
  contrast.ratio = {std::exp(away), std::exp(away), std::exp(away),
                    std::min(first.size(), second.size())};
  if (contrast.ratio.n < 2) return contrast;
  const double half = HalfWidth(a, b);
  contrast.ratio.low = std::exp(away - half);
  contrast.ratio.high = std::exp(away + half);
  const double margin = std::log1p(within);
  if (std::abs(away) + half <= margin) {
    contrast.agreement = Agreement::kAgree;
  } else if (std::abs(away) > half) {
    contrast.agreement = away > 0 ? Agreement::kFirst : Agreement::kSecond;
  } else {
    contrast.blocks_needed = BlocksNeeded(a, b, std::abs(away), margin);
  }
  return contrast;
}

}  // namespace sparfuse::harness

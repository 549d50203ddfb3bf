#include "harness/statistics/contrast.hpp"

#include <algorithm>
#include <cmath>

namespace sparfuse::harness {
namespace {

constexpr double kQuantile = 0.5 + kConfidence / 2;

// Of logarithms.
struct Moments {
  double mean = 0, variance = 0;
  double n = 0;
};

Moments MomentsOf(std::span<const double> values) {
  Moments found;
  found.n = static_cast<double>(values.size());
  const double unit = values.front();  // so that equal values have no variance
  for (const double value : values) found.mean += std::log(value / unit) / found.n;
  if (values.size() > 1) {
    for (const double value : values)
      found.variance += std::pow(std::log(value / unit) - found.mean, 2) / (found.n - 1);
  }
  found.mean += std::log(unit);
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

Contrast ContrastOf(std::span<const double> first, std::span<const double> second, double within) {
  const Moments a = MomentsOf(first), b = MomentsOf(second);
  const double away = a.mean - b.mean;
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

#include "core/collective/overlap.hpp"

#include <algorithm>
#include <cmath>

namespace sparfuse {
double OverlapModel::Union(double density, std::size_t ranks) const {
  if (density <= 0) return 0;
  if (density >= 1 || theta >= 1) return std::min(density, 1.0);
  if (theta <= 0) return -std::expm1(static_cast<double>(ranks) * std::log1p(-density));
  const double both = 1 / theta - 1;  // a + b
  const double a = density * both;
  double log_none = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    log_none += std::log1p(-a / (both + static_cast<double>(i)));
  }
  return -std::expm1(log_none);
}

// What is not selected together is selected independently of its neighbours.
double OverlapModel::BlockUnion(double density, std::size_t block, std::size_t ranks) const {
  const std::size_t choices = std::max<std::size_t>(block / std::max<std::size_t>(together, 1), 1);
  return OverlapModel{}.Union(Union(density, ranks), choices);
}

double OverlapModel::LargestRegion(std::size_t regions) const {
  if (regions <= 1) return 1;
  // The largest of n normal deviates is expected about where a part 0.625 / (n + 0.25) of them lies
  // above (G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958); by bisection. The
  // mean of a lognormal is exp(s^2 / 2).
  const auto n = static_cast<double>(regions);
  double low = 0;
  double high = 10;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > 0.625 / (n + 0.25) ? low : high) = middle;
  }
  return std::clamp(std::exp(skew * low - skew * skew / 2), 1.0, n);
}

double FitTheta(double density, std::size_t ranks, double measured) {
  double low = 0;
  double high = 1;
  if (measured >= OverlapModel{low}.Union(density, ranks)) return low;
  if (measured <= OverlapModel{high}.Union(density, ranks)) return high;
  for (int i = 0; i < 60; ++i) {  // Union falls with theta
    const double middle = (low + high) / 2;
    (OverlapModel{middle}.Union(density, ranks) > measured ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace sparfuse

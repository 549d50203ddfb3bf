#include "core/collective/overlap.hpp"

#include <algorithm>
#include <cmath>

namespace sparfuse {
namespace {

// Returns the expected i-th largest of n normal deviates, i <= (n + 1) / 2, by bisection. A
// fraction (i - 3/8) / (n + 1/4) of the distribution lies above it, approximately (G. Blom,
// Statistical Estimates and Transformed Beta-Variables, 1958).
double ExpectedDeviate(std::size_t i, std::size_t n) {
  const double above = (static_cast<double>(i) - 0.375) / (static_cast<double>(n) + 0.25);
  double low = 0;
  double high = 10;
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > above ? low : high) = middle;
  }
  return low;
}

}  // namespace

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

// Elements that are not selected together are selected independently of their neighbours.
double OverlapModel::BlockUnion(double density, std::size_t block, std::size_t ranks) const {
  const std::size_t choices = std::max<std::size_t>(block / std::max<std::size_t>(together, 1), 1);
  return OverlapModel{}.Union(Union(density, ranks), choices);
}

double OverlapModel::LargestRegion(std::size_t regions) const {
  if (grains > 0) regions = std::min(regions, grains);
  if (regions <= 1 || skew == 0) return 1;
  // The mean is over the existing regions, so that the largest has no more than everything. The
  // mean of many regions changes little with their number.
  constexpr std::size_t kMostOfMean = 64;
  const std::size_t counted = std::min(regions, kMostOfMean);
  double sum = counted % 2 == 0 ? 0 : 1;  // the one in the middle
  for (std::size_t i = 1; i <= counted / 2; ++i) {
    sum += 2 * std::cosh(skew * ExpectedDeviate(i, counted));
  }
  const auto n = static_cast<double>(regions);
  const double largest = std::exp(skew * ExpectedDeviate(1, regions));
  return std::clamp(largest * static_cast<double>(counted) / sum, 1.0, n);
}

}  // namespace sparfuse

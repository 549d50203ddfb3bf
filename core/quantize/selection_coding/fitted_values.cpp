#include "core/quantize/selection_coding/fitted_values.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparfuse {
namespace {

constexpr std::array<std::size_t, 10> kParts = {5,    10,   30,    100,   300,
                                                1000, 3000, 10000, 30000, 100000};
constexpr std::size_t kShort = 30;  // segments of so many are not cut off

// Of `count` values of one sign, from the steepest to where they are flat.
std::vector<std::size_t> TowardsZero(std::size_t count) {
  std::vector<std::size_t> lengths;
  std::size_t rest = count;
  for (const std::size_t part : kParts) {
    if (count / part <= kShort) break;
    lengths.push_back(count / part);
    rest -= count / part;
  }
  std::ranges::reverse(lengths);
  if (rest > 0) lengths.push_back(rest);
  return lengths;
}

double PositionOf(std::size_t j, std::size_t length) {
  if (length == 1) return 0;
  return -1 + 2 * static_cast<double>(j) / static_cast<double>(length - 1);
}

}  // namespace

std::vector<std::size_t> FitSegments(std::size_t count, std::size_t positives) {
  std::vector<std::size_t> lengths = TowardsZero(positives);
  const std::vector<std::size_t> others = TowardsZero(count - positives);
  lengths.insert(lengths.end(), others.rbegin(), others.rend());
  return lengths;
}

std::size_t CountFitSegments(std::size_t count, std::size_t positives) {
  return TowardsZero(positives).size() + TowardsZero(count - positives).size();
}

FitPolynomial Fit(std::span<const float> values) {
  const std::size_t terms = std::min(kFitCoefficients, values.size());
  // The normal equations: well conditioned for positions in [-1, 1] and this degree.
  std::array<double, 2 * kFitCoefficients - 1> moments{};
  FitPolynomial right{};
  for (std::size_t j = 0; j < values.size(); ++j) {
    const double t = PositionOf(j, values.size());
    double power = 1;
    for (std::size_t a = 0; a < 2 * terms - 1; ++a, power *= t) {
      moments[a] += power;
      if (a < terms) right[a] += power * values[j];
    }
  }
  // Cholesky: A = L L^T.
  std::array<FitPolynomial, kFitCoefficients> lower{};
  for (std::size_t i = 0; i < terms; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = moments[i + j];
      for (std::size_t c = 0; c < j; ++c) sum -= lower[i][c] * lower[j][c];
      lower[i][j] = i == j ? std::sqrt(sum) : sum / lower[j][j];
    }
  }
  for (std::size_t i = 0; i < terms; ++i) {
    for (std::size_t c = 0; c < i; ++c) right[i] -= lower[i][c] * right[c];
    right[i] /= lower[i][i];
  }
  for (std::size_t i = terms; i-- > 0;) {
    for (std::size_t c = i + 1; c < terms; ++c) right[i] -= lower[c][i] * right[c];
    right[i] /= lower[i][i];
  }
  return right;
}

void Restore(const FitPolynomial& polynomial, std::span<float> values) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (std::size_t j = 0; j < values.size(); ++j) {
    const double t = PositionOf(j, values.size());
    double sum = polynomial.back();
    for (std::size_t a = kFitCoefficients - 1; a-- > 0;) sum = sum * t + polynomial[a];
    values[j] = static_cast<float>(std::clamp(sum, -kMost, kMost));
  }
}

}  // namespace sparfuse

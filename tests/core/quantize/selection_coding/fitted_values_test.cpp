// Tests the segments of sorted values, and the polynomials that are fitted to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/coding/selection_coding.hpp"

namespace sparfuse {
namespace {

using Lengths = std::vector<std::size_t>;

TEST(FittedValues, SegmentsAreThePublishedOnes) {
  EXPECT_EQ(FitSegments(0, 0), Lengths{});
  EXPECT_EQ(FitSegments(10, 4), (Lengths{4, 6}));
  EXPECT_EQ(FitSegments(154, 154), Lengths{154});  // a fifth is 30, which is not above 30
  EXPECT_EQ(FitSegments(155, 155), (Lengths{31, 124}));
  EXPECT_EQ(FitSegments(1000 + 400, 1000), (Lengths{33, 100, 200, 667, 280, 80, 40}));
  for (const std::size_t count : Lengths{1, 31, 5000, 100'000, 3'100'001}) {
    for (const std::size_t positives : {std::size_t{0}, count / 3, count}) {
      const Lengths lengths = FitSegments(count, positives);
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), count);
      EXPECT_EQ(lengths.size(), CountFitSegments(count, positives));
      EXPECT_EQ(std::ranges::count(lengths, std::size_t{0}), 0);
    }
  }
  EXPECT_EQ(CountFitSegments(3'100'000, 3'100'000), 11u);  // all ten fractions and the remainder
}

// The fit finds a polynomial of degree 5 again, for any number of values.
TEST(FittedValues, PolynomialsAreExact) {
  const FitPolynomial truth = {0.5, -3, 0.25, 7, -2, 1.5};
  for (const std::size_t length : Lengths{6, 7, 31, 1000, 200'001}) {
    std::vector<float> values(length);
    Restore(truth, values);
    const FitPolynomial found = Fit(values);
    for (std::size_t a = 0; a < truth.size(); ++a) {
      EXPECT_NEAR(found[a], truth[a], 1e-4) << length;  // values are floats
    }
    std::vector<float> restored(length);
    Restore(found, restored);
    for (std::size_t j = 0; j < length; ++j) {
      EXPECT_NEAR(restored[j], values[j], 1e-6 * (1 + std::fabs(values[j]))) << length;
    }
  }
}

TEST(FittedValues, FewValuesAreMet) {
  const std::vector<float> values = {9, 4, 3.5f, -1, -7};
  for (std::size_t length = 1; length <= values.size(); ++length) {
    const auto some = std::span(values).first(length);
    const FitPolynomial found = Fit(some);
    std::vector<float> restored(length);
    Restore(found, restored);
    for (std::size_t j = 0; j < length; ++j) EXPECT_NEAR(restored[j], some[j], 1e-5);
    for (std::size_t a = length; a < found.size(); ++a) EXPECT_EQ(found[a], 0);
  }
}

// The fit is the nearest polynomial of degree 5: every other one is farther.
TEST(FittedValues, AreLeastSquares) {
  std::vector<float> values(500);
  for (std::size_t j = 0; j < values.size(); ++j) {
    values[j] = std::log(501.0f - static_cast<float>(j));
  }
  const auto error = [&](const FitPolynomial& polynomial) {
    double sum = 0;
    for (std::size_t j = 0; j < values.size(); ++j) {
      const double t = -1 + 2 * static_cast<double>(j) / 499;
      double value = 0;
      for (std::size_t a = polynomial.size(); a-- > 0;) value = value * t + polynomial[a];
      sum += (value - values[j]) * (value - values[j]);
    }
    return sum;
  };
  const FitPolynomial found = Fit(values);
  for (std::size_t a = 0; a < found.size(); ++a) {
    for (const double step : {1e-3, -1e-3}) {
      FitPolynomial other = found;
      other[a] += step;
      EXPECT_GT(error(other), error(found));
    }
  }
}

TEST(FittedValues, StayFinite) {
  const float most = std::numeric_limits<float>::max();
  std::vector<float> values(40, most);
  for (std::size_t j = 0; j < values.size(); j += 2) values[j] = -most;
  std::vector<float> restored(values.size());
  Restore(Fit(values), restored);
  for (const float value : restored) EXPECT_TRUE(std::isfinite(value));
  Restore({1e300, 0, 0, 0, 0, 0}, restored);
  EXPECT_EQ(restored.front(), most);
}

}  // namespace
}  // namespace sparfuse

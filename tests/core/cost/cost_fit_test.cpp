// Tests the constants of a link that are fitted to measured times.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/base/error.hpp"
#include "core/cost/fit.hpp"

namespace sparfuse {
namespace {

using Points = std::vector<TimedTransfer>;

TEST(FitAlphaBeta, FindsAnExactLine) {
  Points points;
  for (const double bytes : {0.0, 1024.0, 65536.0, 4194304.0}) {
    points.push_back({bytes, 2e-5 + 3e-10 * bytes});
  }
  const AlphaBeta fit = FitAlphaBeta(points);
  EXPECT_NEAR(fit.alpha_seconds, 2e-5, 1e-17);
  EXPECT_NEAR(fit.seconds_per_byte, 3e-10, 1e-22);
  EXPECT_NEAR(fit.Seconds(1e6), 3.2e-4, 1e-15);
  EXPECT_NEAR(fit.worst_relative_residual, 0, 1e-12);
  EXPECT_NEAR(fit.r_squared, 1, 1e-12);
}

// Weights 1, 1, 1/4: W = 9/4, Wx = 3/2, Wy = 5/2, Wxx = 2, Wxy = 2, determinant 9/4; hence alpha =
// 8/9, beta = 1/3, relative residuals 1/9, -2/9, 2/9 whose squares add up to 1/9.
TEST(FitAlphaBeta, WeighsRelativeErrors) {
  const AlphaBeta fit = FitAlphaBeta(Points{{0, 1}, {1, 1}, {2, 2}});
  EXPECT_DOUBLE_EQ(fit.alpha_seconds, 8.0 / 9);
  EXPECT_DOUBLE_EQ(fit.seconds_per_byte, 1.0 / 3);
  EXPECT_DOUBLE_EQ(fit.alpha_standard_error, std::sqrt(8.0) / 9);
  EXPECT_DOUBLE_EQ(fit.seconds_per_byte_standard_error, 1.0 / 3);
  ASSERT_EQ(fit.relative_residuals.size(), 3u);
  EXPECT_NEAR(fit.relative_residuals[0], 1.0 / 9, 1e-15);
  EXPECT_NEAR(fit.relative_residuals[1], -2.0 / 9, 1e-15);
  EXPECT_NEAR(fit.relative_residuals[2], 2.0 / 9, 1e-15);
  EXPECT_NEAR(fit.rms_relative_residual, std::sqrt(1.0 / 27), 1e-15);
  EXPECT_NEAR(std::abs(fit.worst_relative_residual), 2.0 / 9, 1e-15);
  EXPECT_NEAR(fit.r_squared, 0.5, 1e-15);
}

// Times that vary by 5 %: both constants lie within four standard errors of the truth, which for 40
// points a correct fit misses about once in 10,000 fits, and the errors are of the noise's size.
TEST(FitAlphaBeta, StandardErrorsCoverNoise) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    Points points;
    for (int i = 0; i < 40; ++i) {
      const double bytes = i % 10 == 0 ? 0 : std::pow(4.0, i % 10 + 2);
      const double noise = static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
      points.push_back({bytes, (1e-4 + 1e-9 * bytes) * (1 + 0.1 * std::sqrt(3.0) * noise)});
    }
    const AlphaBeta fit = FitAlphaBeta(points);
    EXPECT_LT(std::abs(fit.alpha_seconds - 1e-4), 4 * fit.alpha_standard_error);
    EXPECT_LT(std::abs(fit.seconds_per_byte - 1e-9), 4 * fit.seconds_per_byte_standard_error);
    EXPECT_LT(fit.alpha_standard_error, 0.02 * 1e-4);
    EXPECT_GT(fit.rms_relative_residual, 0.03);
    EXPECT_LT(fit.rms_relative_residual, 0.07);
  }
}

std::string MessageOf(const Points& points) {
  try {
    FitAlphaBeta(points);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kData);
    return error.what();
  }
  return "no error";
}

TEST(FitAlphaBeta, RefusesWhatDeterminesNoLine) {
  EXPECT_NE(MessageOf({}).find("0 point(s)"), std::string::npos);
  EXPECT_NE(MessageOf({{0, 1e-5}, {1024, 2e-5}}).find("at least 3"), std::string::npos);
  EXPECT_NE(MessageOf({{64, 1e-5}, {64, 2e-5}, {64, 3e-5}}).find("at least two sizes"),
            std::string::npos);
  EXPECT_NE(MessageOf({{0, 0}, {64, 1e-5}, {128, 2e-5}}).find("a time above 0"), std::string::npos);
}

}  // namespace
}  // namespace sparfuse

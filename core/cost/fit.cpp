#include "core/cost/fit.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

void Check(std::span<const TimedTransfer> points) {
  if (points.size() < 3) {
    SPARFUSE_THROW(kData, "a fit of alpha and beta from ", points.size(),
                   " point(s); expected at least 3");
  }
  for (const TimedTransfer& point : points) {
    if (!(point.seconds > 0) || !std::isfinite(point.seconds) || !std::isfinite(point.bytes)) {
      SPARFUSE_THROW(kData, "a fit of alpha and beta: ", point.bytes, " bytes take ", point.seconds,
                     " s; expected a time above 0");
    }
  }
  const bool same_size = std::all_of(points.begin(), points.end(), [&](const TimedTransfer& point) {
    return point.bytes == points.front().bytes;
  });
  if (same_size) {
    SPARFUSE_THROW(kData, "a fit of alpha and beta: every point has ", points.front().bytes,
                   " bytes; expected at least two sizes");
  }
}

}  // namespace

AlphaBeta FitAlphaBeta(std::span<const TimedTransfer> points) {
  Check(points);
  const auto weight = [](const TimedTransfer& point) {
    return 1 / (point.seconds * point.seconds);
  };
  double weights = 0;
  double mean_bytes = 0;
  double mean_seconds = 0;
  for (const TimedTransfer& point : points) {
    weights += weight(point);
    mean_bytes += weight(point) * point.bytes;
    mean_seconds += weight(point) * point.seconds;
  }
  mean_bytes /= weights;
  mean_seconds /= weights;
  // Centres on the weighted means, so that the sums do not cancel.
  double bytes_squared = 0;
  double mixed = 0;
  double seconds_squared = 0;
  for (const TimedTransfer& point : points) {
    const double x = point.bytes - mean_bytes;
    const double y = point.seconds - mean_seconds;
    bytes_squared += weight(point) * x * x;
    mixed += weight(point) * x * y;
    seconds_squared += weight(point) * y * y;
  }

  AlphaBeta fit;
  fit.seconds_per_byte = mixed / bytes_squared;
  fit.alpha_seconds = mean_seconds - fit.seconds_per_byte * mean_bytes;
  double residuals_squared = 0;
  for (const TimedTransfer& point : points) {
    const double residual = (point.seconds - fit.Seconds(point.bytes)) / point.seconds;
    fit.relative_residuals.push_back(residual);
    residuals_squared += residual * residual;
    if (std::abs(residual) > std::abs(fit.worst_relative_residual)) {
      fit.worst_relative_residual = residual;
    }
  }
  const auto n = static_cast<double>(points.size());
  const double variance = residuals_squared / (n - 2);
  fit.seconds_per_byte_standard_error = std::sqrt(variance / bytes_squared);
  fit.alpha_standard_error =
      std::sqrt(variance * (1 / weights + mean_bytes * mean_bytes / bytes_squared));
  fit.rms_relative_residual = std::sqrt(residuals_squared / n);
  fit.r_squared = seconds_squared > 0 ? 1 - residuals_squared / seconds_squared : 1;
  return fit;
}

}  // namespace sparfuse

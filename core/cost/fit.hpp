// Fits constants of a link to measured times, for people and for declared clusters. The model
// itself computes with the measured curve.
#pragma once

#include <span>
#include <vector>

namespace sparfuse {

struct TimedTransfer {
  double bytes = 0;
  double seconds = 0;  // above 0
};

// seconds = alpha + beta * bytes.
struct AlphaBeta {
  double alpha_seconds = 0;
  double alpha_standard_error = 0;
  double seconds_per_byte = 0;
  double seconds_per_byte_standard_error = 0;
  // (measured - fitted) / measured, by point in the order given.
  std::vector<double> relative_residuals;
  double rms_relative_residual = 0;
  double worst_relative_residual = 0;  // the largest in magnitude, with its sign
  double r_squared = 0;                // of the weighted variance of seconds; 1: an exact line

  double Seconds(double bytes) const { return alpha_seconds + seconds_per_byte * bytes; }
};

// Least squares of relative errors: minimises sum(((seconds - alpha - beta * bytes) / seconds)^2),
// because sizes span several orders of magnitude and an unweighted fit would see the largest only.
// Standard errors come from the residuals, n - 2 degrees of freedom: how far the link is from a
// straight line counts as uncertainty. Either constant may come out negative.
//
// Throws Error{kData} for fewer than three points, points that all have the same size, and a time
// that is not above 0.
AlphaBeta FitAlphaBeta(std::span<const TimedTransfer> points);

}  // namespace sparfuse

// Fits constants of a link to measured times, for readers and for declared clusters. The model
// itself uses the measured curve.
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
// Standard errors come from the residuals, with n - 2 degrees of freedom: the link's deviation from
// a straight line counts as uncertainty. Either constant may come out negative.
//
// Throws Error{kData} if there are fewer than three points, if all points have the same size, or if
// a time is not above 0.
AlphaBeta FitAlphaBeta(std::span<const TimedTransfer> points);

}  // namespace sparfuse

// Computes quantiles of the distributions that GaussianK fits to elements and SIDCo to magnitudes,
// on the host and on devices. A quantile is the value that a fraction of the distribution lies
// above. In SIDCo's later stages the fraction is a ratio of densities. It is above 1 if a stage
// asks for more elements than the stage before leaves.
#pragma once

#include <cmath>

#include "core/device/kernel.hpp"

namespace sparfuse {

// log(Gamma(x)), without the global that std::lgamma writes. x > 0.
SPARFUSE_HOST_DEVICE double LogGamma(double x) {
#ifdef __CUDA_ARCH__
  return lgamma(x);
#else
  int sign = 0;
  return lgamma_r(x, &sign);
#endif
}

// The normal distribution with this mean and variance; z: its standardised quantile.
SPARFUSE_HOST_DEVICE double NormalQuantile(double mean, double variance, double z) {
  return mean + z * std::sqrt(variance);
}

// The generalised Pareto distribution with this mean and variance.
SPARFUSE_HOST_DEVICE double ParetoQuantile(double mean, double variance, double fraction) {
  const double squared = mean * mean / variance;
  const double shape = 0.5 * (squared - 1);
  const double scale = 0.5 * mean * (squared + 1);
  const double log = std::log(fraction);
  // shape -> 0 is the exponential distribution; expm1 keeps the digits that 1 - exp would lose.
  return shape == 0 ? -scale * log : -scale * std::expm1(shape * log) / shape;
}

// The maximum-likelihood estimate, in closed form, of the shape of a gamma distribution. log_gap:
// the logarithm of the mean less the mean logarithm, above 0 unless all values are equal.
SPARFUSE_HOST_DEVICE double GammaShape(double log_gap) {
  const double s = log_gap;
  return (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
}

// The quantile of a gamma distribution for small fractions (corollary 1.2 of the SIDCo paper).
SPARFUSE_HOST_DEVICE double SmallGammaQuantile(double shape, double scale, double fraction) {
  return -scale * (std::log(fraction) + LogGamma(shape));
}

}  // namespace sparfuse

#include "core/sparsify/fits.hpp"

#include <cmath>

namespace sparfuse {

double LogGamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

double ParetoQuantile(double mean, double variance, double fraction) {
  const double squared = mean * mean / variance;
  const double shape = 0.5 * (squared - 1);
  const double scale = 0.5 * mean * (squared + 1);
  const double log = std::log(fraction);
  // shape -> 0 is the exponential distribution; expm1 keeps the digits that 1 - exp would lose.
  return shape == 0 ? -scale * log : -scale * std::expm1(shape * log) / shape;
}

double GammaShape(double log_gap) {
  const double s = log_gap;
  return (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
}

double SmallGammaQuantile(double shape, double scale, double fraction) {
  return -scale * (std::log(fraction) + LogGamma(shape));
}

}  // namespace sparfuse

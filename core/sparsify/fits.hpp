// Quantiles of the distributions that SIDCo fits to magnitudes: the value that a fraction of the
// distribution lies above. In later stages the fraction is a ratio of densities, which is above 1
// where more is asked for than the stage before leaves.
#pragma once

namespace sparfuse {

// log(Gamma(x)), without the global that std::lgamma writes. x > 0.
double LogGamma(double x);

// The generalised Pareto distribution with this mean and variance.
double ParetoQuantile(double mean, double variance, double fraction);

// The shape of a gamma distribution, its maximum-likelihood estimate in closed form, from the
// logarithm of the mean less the mean logarithm, which is above 0 unless all values are equal.
double GammaShape(double log_gap);

// The quantile of a gamma distribution for small fractions (corollary 1.2 of the SIDCo paper).
double SmallGammaQuantile(double shape, double scale, double fraction);

}  // namespace sparfuse

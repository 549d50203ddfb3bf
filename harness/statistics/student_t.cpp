// Computes quantiles of Student's t: the one file that pays for Boost.Math's headers.
#include <boost/math/distributions/students_t.hpp>

#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

double StudentTQuantile(double probability, double freedom) {
  return boost::math::quantile(boost::math::students_t(freedom), probability);
}

}  // namespace sparfuse::harness

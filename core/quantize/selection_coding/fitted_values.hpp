// Fits polynomials to sorted values, and computes the values again from what a few of them say.
//
// Source:      DeepReduce (bloom_filter.hpp), section 4.2 and its code: values in descending order
//              are cut into segments, and each is fitted by least squares with a polynomial of
//              degree 5 of the positions in it.
// Deviations:  positions are scaled to [-1, 1], since powers of 1, 2, 3, ... are badly conditioned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sparfuse {

inline constexpr std::size_t kFitCoefficients = 6;  // degree 5

// c[0] + c[1] t + ... + c[5] t^5, t = -1 + 2 j / (length - 1) at position j; 0 where the length is
// 1.
using FitPolynomial = std::array<double, kFitCoefficients>;

// The lengths of the segments of `count` values in descending order, the first `positives` of which
// are above 0. With s_1 > s_2 > ... those of p / 5, 10, 30, 100, 300, 1000, 3000, 10000, 30000 and
// 100000 (rounded down) that are above 30, p of what is positive, q of the rest: ..., s_2, s_1,
// p - (s_1 + ...), then q - (s_1 + ...), s_1, s_2, ... None is 0.
std::vector<std::size_t> FitSegments(std::size_t count, std::size_t positives);
std::size_t CountFitSegments(std::size_t count, std::size_t positives);

// Least squares. Where there are fewer values than coefficients, the highest ones are 0 and the
// polynomial goes through all values.
FitPolynomial Fit(std::span<const float> values);

// The polynomial's values, cut off at the largest that a float has. A NaN where a coefficient is
// none.
void Restore(const FitPolynomial& polynomial, std::span<float> values);

}  // namespace sparfuse

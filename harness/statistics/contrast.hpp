// Judges whether two systems say the same of a ratio.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

// Two ratios that differ by less are the same to a reader.
inline constexpr double kSameWithin = 0.05;

enum class Agreement : std::uint8_t {
  kAgree,   // the whole interval lies within the margin
  kFirst,   // the first one's is larger
  kSecond,  // the second one's is larger
  kUndecided,
};

struct Contrast {
  Agreement agreement = Agreement::kUndecided;
  Interval ratio;  // of the first's geometric mean over the second's; n: blocks of the fewer
  // Where it is undecided: with how many blocks on either side the interval, if the values go on as
  // they are, is narrow enough to exclude 1 or to lie within the margin. 0 where one block of
  // either side leaves no idea of the spread.
  std::size_t blocks_needed = 0;
};

// first, second: a ratio in each block of two systems, whose blocks have nothing in common: the 95
// % interval of the difference of the logarithms, variances apart, with the freedom of the side
// that has fewer blocks. (Satterthwaite's freedom, Welch's test, finds a difference between equals
// in up to 11 of 100 cases where one side has two blocks and the other eight; this never in more
// than 5.) `within`: the margin, 0.05 for 5 %. Equal values never differ. Preconditions: neither is
// empty, all values are finite and above 0, within > 0.
Contrast ContrastOf(std::span<const double> first, std::span<const double> second, double within);

}  // namespace sparfuse::harness

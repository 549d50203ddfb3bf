// Computes intervals over blocks, judges claims with them (docs/metrics.md), and decides whether
// two systems agree in a ratio.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

inline constexpr std::size_t kPreliminaryBelowBlocks = 5;
inline constexpr double kConfidence = 0.95;
// The papers' own spread: the largest distance of a reproduced ratio from the stated one.
inline constexpr double kReproducedWithin = 0.08;

// Precondition: values is not empty.
double Median(std::span<const double> values);

// The t with P(T <= t) = probability for `freedom` degrees of freedom (Boost.Math's).
// Preconditions: 0 < probability < 1, freedom >= 1.
double StudentTQuantile(double probability, double freedom);

// A median and how well it is known.
struct Estimate {
  double value = 0;
  double standard_error = 0;
  // 0 if the value is 0.
  double relative_error() const { return value == 0 ? 0 : standard_error / std::abs(value); }
};

// The median of independent values. Its standard error is half the width of the shortest interval
// between order statistics that covers 95 % (of all values if there are fewer than six), divided by
// the normal quantile of its true coverage. So no distribution is assumed, and outliers count once.
// 0 for a single value, which gives no error. Precondition: values is not empty.
Estimate MedianEstimate(std::span<const double> values);

// A quantity over blocks; low = high = value if one block leaves no interval.
struct Interval {
  double value = 0, low = 0, high = 0;
  std::size_t n = 0;
  bool has_bounds() const { return n >= 2 || low < high; }
};

// Geometric mean with the t interval of the logarithms; none for an empty span or a value <= 0.
// One end of the interval of confidence 1 - 2 p is the limit of a one-sided test at p.
std::optional<Interval> LogInterval(std::span<const double> values,
                                    double confidence = kConfidence);

// Mean with its t interval; none for an empty span.
std::optional<Interval> MeanInterval(std::span<const double> values);

// `value`, and the ends between which all draws but one on either side put it; draws are in units
// of `scale`. Precondition: draws is not empty.
Interval BandOfDraws(double value, std::vector<double> draws, double scale = 1);

// The values of blocks, in the order of the blocks.
std::vector<double> OfBlocks(const std::map<int, double>& by_block);

// ours / other of the blocks where both are above 0.
std::map<int, double> RatiosByBlock(const std::map<int, double>& ours,
                                    const std::map<int, double>& other);
// ours / other of two trials that took turns, from their values in each round: the geometric mean
// of the rounds' ratios. Preconditions: both have the same number of rounds, at least one; all
// values are above 0.
double RatioOfRounds(std::span<const double> ours, std::span<const double> other);

// ours - other of the blocks that both have.
std::optional<Interval> PairedDifference(const std::map<int, double>& ours,
                                         const std::map<int, double>& other);

enum class Verdict {
  kReproduced,
  kDirectionOnly,
  kNotReproduced,
  kInconclusive,
  kNotRun,
  kDisturbed,         // the trials that there are were disturbed
  kTargetNotReached,  // it is about reaching a target, which no trial of a cell did
  kInvalid,
  kConsistentModelled,  // emulated or modelled numbers reproduce at most this
  kHolds,               // these two: of a relation
  kDoesNotHold,
};
std::string_view VerdictName(Verdict verdict);
// Said of a cell whose trials trained without reaching their target, wherever its number to the
// target would stand.
inline constexpr std::string_view kTargetNotReached = "target not reached";

// Judges `ratio` against the stated ratio. measured: false for emulated and modelled numbers, which
// can be at most consistent with the paper. With fewer than two blocks, a measured or emulated
// ratio has no interval, and the verdict is inconclusive. exact: the value is computed, so that a
// single one needs no interval.
Verdict Judge(const std::optional<Interval>& ratio, double stated, bool measured, bool exact);

// Judges a difference against the stated one: reproduced if the interval contains it and not 0.
// Precondition: stated is not 0.
Verdict JudgeDifference(const std::optional<Interval>& difference, double stated, bool measured,
                        bool exact);

enum class Comparison { kLess, kAtMost, kEquals, kAtLeast, kMore };

struct Bound {
  Comparison comparison = Comparison::kEquals;
  double value = 0;
};

// Judges whether `ours` has the relation `bound`. It holds if the whole interval satisfies it, does
// not hold if no part does, and is inconclusive otherwise. kAtMost and kAtLeast allow `slack`
// beyond the bound if the bound itself is in the interval, because two equal quantities differ by
// noise. For kEquals every block's value must be the bound.
Verdict JudgeBound(const std::optional<Interval>& ours, Bound bound, double slack, bool exact);

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
  // If the verdict is undecided: the number of blocks on either side with which the interval, for
  // values like these, would be narrow enough to exclude 1 or to lie within the margin. 0 if one
  // side has one block, because the spread is then unknown.
  std::size_t blocks_needed = 0;
};

// first, second: a ratio in each block of two systems whose blocks are unrelated. The result is the
// 95 % interval of the difference of the logarithms, with separate variances and the degrees of
// freedom of the side with fewer blocks. (Satterthwaite's degrees of freedom, Welch's test, find a
// difference between equals in up to 11 of 100 cases if one side has two blocks and the other
// eight. This method never does in more than 5.) within: the margin, 0.05 for 5 %. Equal values
// never differ. Preconditions: neither is empty, all values are finite and above 0, within > 0.
Contrast ContrastOf(std::span<const double> first, std::span<const double> second, double within);

}  // namespace sparfuse::harness

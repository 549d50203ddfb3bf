// Measures x for threshold sparsifiers: moments, the tail above a magnitude, counts at several
// thresholds. Computes moments and threshold keys from these statistics, alike on the host and on
// devices. Selects all elements that reach a threshold, or corrects an estimated threshold:
// collects candidates in the pass that measures, and sends the k largest if the estimate misses k.
//
// Sums are the same, bit for bit, for every instruction set and size of the pool, and within 1e-6
// relative of a sum in double precision (`sum`: relative to the sum of magnitudes).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {

// The elements with key >= `key`.
struct Tail {
  std::uint32_t key = 0;
  TailSums sums = {};
};

inline constexpr std::size_t kMaxTails = 8;

struct Statistics {
  // Set by the caller: the measures in addition to the moments. Of a tail the caller sets the key.
  std::size_t tail_count = 0;
  Tail tails[kMaxTails];
  bool tail_squares = false;
  unsigned moments = kWantSum | kWantAbs | kWantSquares;  // wanted sums; the others are undefined
  bool logs = false;

  // Results over all elements of x.
  std::size_t n = 0;
  double sum = 0;
  double sum_abs = 0;
  double sum_squares = 0;
  std::uint32_t max_key = 0;
  // With `logs`: sum of log|x| over the elements that are neither zero nor denormal, and their
  // number.
  double sum_log = 0;
  std::size_t log_count = 0;

  SPARFUSE_HOST_DEVICE double Mean() const { return sum / static_cast<double>(n); }
  SPARFUSE_HOST_DEVICE double MeanAbs() const { return sum_abs / static_cast<double>(n); }
  SPARFUSE_HOST_DEVICE double MaxAbs() const {
    return static_cast<double>(std::bit_cast<float>(max_key));
  }
};

// Unbiased variance of `count` values with these sums, not below 0. NaN for one value.
SPARFUSE_HOST_DEVICE double SampleVariance(std::size_t count, double sum, double sum_squares) {
  const auto n = static_cast<double>(count);
  const double squares = sum_squares - sum * (sum / n);
  return (squares < 0 ? 0.0 : squares) / (n - 1);
}

namespace internal {

// The largest float that is not above `threshold`, as a key. threshold >= 0.
SPARFUSE_HOST_DEVICE std::uint32_t KeyBelow(double threshold) {
  constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
  if (threshold >= kLargest) return kInfinityKey - 1;
  const auto rounded = static_cast<float>(threshold);
  const auto key = std::bit_cast<std::uint32_t>(rounded) & kAbsMask;
  return static_cast<double>(rounded) > threshold ? key - 1 : key;
}

}  // namespace internal

// The smallest key of a magnitude >= threshold, and of a magnitude > threshold. Every key reaches a
// negative threshold; no key reaches a threshold beyond the largest float. Precondition: not a NaN.
SPARFUSE_HOST_DEVICE std::uint32_t KeyAtLeast(double threshold) {
  if (threshold <= 0) return 0;
  const std::uint32_t key = internal::KeyBelow(threshold);
  return static_cast<double>(std::bit_cast<float>(key)) < threshold ? key + 1 : key;
}
SPARFUSE_HOST_DEVICE std::uint32_t KeyAbove(double threshold) {
  return threshold < 0 ? 0 : internal::KeyBelow(threshold) + 1;
}

// Measures x in one pass, which adds the residual if that is pending. `statistics` names the
// measures in addition to the moments; its sums must be zero. Invalidates candidates. Throws
// Error{kNumeric}.
Statistics Measure(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   Statistics statistics = {});

// Adds the measures of one block of x to `total`. Blocks must come in index order. n <= kBlock.
void MeasureBlock(const SelectKernels& kernels, const float* x, std::size_t n, Statistics& total);

// Adds a part that follows the parts added before.
void AddStatistics(const Statistics& part, Statistics& total);

// counts[j] = the number of elements of x with key >= keys[j]. At most kCountedKeys keys in one
// pass.
// Precondition: nothing is pending.
void CountReaching(const SelectContext& context, const SelectInput& input,
                   std::span<const std::uint32_t> keys, std::span<std::size_t> counts);

// Returns the number of stored candidates with key >= `key`, and writes each segment's number to
// its `above`.
std::size_t CountCandidates(const SelectContext& context, const Candidates& candidates,
                            std::uint32_t key);

// Sends the first `most` candidates, in index order, of those that the last CountCandidates counted
// with the same key. Precondition: they fit the slot.
void SendCandidates(const SelectContext& context, const SelectInput& input,
                    const Candidates& candidates, std::uint32_t key, Slot& slot,
                    std::size_t most = ~std::size_t{0});

// Sends all elements with key >= `key`. If there are none, sends the k largest and raises
// `fallbacks`; if there are more than the slot holds, sends the k largest and raises `overflows`.
// Returns the number of elements that reach the key. Precondition: k <= slot.capacity.
std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         std::uint32_t key, std::size_t k, Slot& slot);

// TakeReaching with candidates that have been collected already.
std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         const Candidates& candidates, std::uint32_t key, std::size_t k,
                         Slot& slot);

// An estimated threshold stands if it selects within k / 50 of k: 2 %, and exactly k below 50.
inline constexpr std::size_t CountTolerance(std::size_t k) { return k / 50; }

// Measures all of x and collects at least min(k + CountTolerance(k) + 1, n) candidates. They
// include the selection of any threshold that selects too few or about k elements. It takes one
// pass over x. If too few elements reach the bound, or too many reach the bound of the step before,
// `fallbacks` is raised and a pass added. If more elements than can be stored equal the magnitude
// of that rank, only the elements above it are collected, and Candidates::ties_below is set.
//   bound   the tensor's bound, or null: then a sample gives one.
// Throws Error{kNumeric}.
Candidates CollectAndMeasure(const SelectContext& context, SelectInput& input,
                             const TensorInfo& info, std::size_t k, const WarmBound* bound,
                             Statistics* statistics);

// Lets the bound (or null) learn from its candidates. kth_key: the key of the k-th magnitude.
void Learn(const Candidates& candidates, std::uint32_t kth_key, std::size_t k, WarmBound* bound);

// Sends all elements with |x| > `estimate` if their number is k to within CountTolerance, else the
// k largest, and lets the bound (or null) learn. An estimate that is not a number raises
// `fallbacks`.
//   candidates  from CollectAndMeasure. Their bound does not change the selection, unless they were
//               too many to store: then the k largest are sent.
// Returns the number of elements above the estimate: a lower limit if it is below all candidates, 0
// if it is not a number.
std::size_t SendCorrected(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          const Candidates& candidates, double estimate, std::size_t k,
                          WarmBound* bound, Slot& slot);

// The contraction of SendCorrected: it keeps the k - CountTolerance(k) largest elements, or more.
double CorrectedFraction(std::span<const std::int64_t> shape, double density);

// The contraction of any selection that keeps the largest element: 1 / n.
double OneElement(std::span<const std::int64_t> shape, double density);

// z >= 0 with P(|N(0, 1)| > z) = density. density in (0, 1].
double TwoSidedNormalQuantile(double density);

}  // namespace sparfuse

// Holds the statistics of a tensor and computes moments and threshold keys from them, alike on the
// host and on devices.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {

// The elements with key >= `key`.
struct Tail {
  std::uint32_t key = 0;
  TailSums sums = {};
};

inline constexpr std::size_t kMaxTails = 8;

struct Statistics {
  // Set by the caller: what is measured beside the moments. Of a tail, its key.
  std::size_t tail_count = 0;
  Tail tails[kMaxTails];
  bool tail_squares = false;
  bool moments = true;  // else the sums over all elements stay zero
  bool logs = false;

  // Of all elements of x.
  std::size_t n = 0;
  double sum = 0;
  double sum_abs = 0;
  double sum_squares = 0;
  std::uint32_t max_key = 0;
  // With `logs`: sum of log|x| over the elements that are not zero nor denormal, and their number.
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

// The smallest key of a magnitude >= threshold, and of one > threshold. Every key reaches a
// negative threshold, none one beyond the largest float. Precondition: not a NaN.
SPARFUSE_HOST_DEVICE std::uint32_t KeyAtLeast(double threshold) {
  if (threshold <= 0) return 0;
  const std::uint32_t key = internal::KeyBelow(threshold);
  return static_cast<double>(std::bit_cast<float>(key)) < threshold ? key + 1 : key;
}
SPARFUSE_HOST_DEVICE std::uint32_t KeyAbove(double threshold) {
  return threshold < 0 ? 0 : internal::KeyBelow(threshold) + 1;
}

}  // namespace sparfuse

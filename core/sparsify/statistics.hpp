// What threshold sparsifiers measure of x: moments, the tail above a magnitude, counts at several
// thresholds; and the selection of everything that reaches one.
//
// Sums are the same, bit for bit, whatever the instruction set and the size of the pool, and within
// 1e-6 relative of a sum in double precision (`sum`: relative to the sum of magnitudes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/sparsify/scan.hpp"

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

  double Mean() const { return sum / static_cast<double>(n); }
  double MeanAbs() const { return sum_abs / static_cast<double>(n); }
  double MaxAbs() const;
};

// Measures x in one pass, which adds the residual if that is pending. `statistics` says what beside
// the moments; its sums are zero before. Invalidates candidates. Throws Error{kNumeric}.
Statistics Measure(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   Statistics statistics = {});

// Adds to `total`, in index order, what one block of x holds. n <= kBlock.
void MeasureBlock(const SelectKernels& kernels, const float* x, std::size_t n, Statistics& total);

// Adds a part that lies behind those added before.
void AddStatistics(const Statistics& part, Statistics& total);

// counts[j] = elements of x with key >= keys[j], for at most kCountedKeys keys in one pass.
// Precondition: nothing is pending.
void CountReaching(const SelectContext& context, const SelectInput& input,
                   std::span<const std::uint32_t> keys, std::span<std::size_t> counts);

// The smallest key of a magnitude >= threshold, and of one > threshold. Every key reaches a
// negative threshold, none one beyond the largest float. Precondition: not a NaN.
std::uint32_t KeyAtLeast(double threshold);
std::uint32_t KeyAbove(double threshold);

// The number of stored candidates with key >= `key`; kept in `above` of their runs.
std::size_t CountCandidates(const SelectContext& context, const Candidates& candidates,
                            std::uint32_t key);

// Sends the candidates that CountCandidates counted last, with the same key. They fit the slot.
void SendCandidates(const SelectContext& context, const SelectInput& input,
                    const Candidates& candidates, std::uint32_t key, Slot& slot);

// Sends all of x with key >= `key`. If that is nothing, the k largest are sent and `fallbacks`
// raised; if it is more than the slot holds, the k largest are sent and `overflows` raised. Returns
// how many reach the key. Precondition: k <= slot.capacity.
std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         std::uint32_t key, std::size_t k, Slot& slot);

// The same, where candidates are at hand.
std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         const Candidates& candidates, std::uint32_t key, std::size_t k,
                         Slot& slot);

// Unbiased variance of `count` values with these sums, not below 0. NaN for one value.
double SampleVariance(std::size_t count, double sum, double sum_squares);

// z >= 0 with P(|N(0, 1)| > z) = density. density in (0, 1].
double TwoSidedNormalQuantile(double density);

}  // namespace sparfuse

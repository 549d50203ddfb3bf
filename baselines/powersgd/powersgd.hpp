// Approximates, by PowerSGD, a gradient matrix as the product of two thin matrices, found by one
// step of power iteration that starts from the result of the last step.
//
// Source:      T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: practical low-rank gradient
//              compression for distributed optimization", NeurIPS 2019, algorithms 1 and 2.
// Deviations:  in PowerSgdDescriptor().
//
// The steps are separate because two all-reduces lie between them. With x = gradient + residual:
//
//   ComputeP         x = gradient + residual, P = x Q
//                    all-reduce p() to the mean over ranks
//   Orthonormalize   makes P's columns orthonormal
//   ComputeQ         Q = x' P
//                    all-reduce q() to the mean over ranks
//   Reconstruct      out = P Q', residual = x - out
//
// Summed over ranks, residuals + ranks * out = sum of x. All-reduces that give all ranks equal bits
// keep P, Q and out equal on all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/device/device.hpp"

namespace sparfuse {

inline constexpr int kMaxLowRank = 32;

// A tensor as a matrix of its first dimension times the rest, and the rank of its factors. All 0
// for fewer than two dimensions.
struct LowRankShape {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t rank = 0;
};
LowRankShape LowRankShapeOf(std::span<const std::int64_t> shape, int rank);

// One tensor on one rank: a matrix of its first dimension times the rest, row-major.
class PowerSgd {
 public:
  // Whether a tensor is sent as two factors: if it is a matrix larger than its factors. Others are
  // sent dense. rank in [1, kMaxLowRank]; it is capped at the smaller side of the matrix.
  static bool Compresses(std::span<const std::int64_t> shape, int rank);

  // Precondition: Compresses(shape, rank). Ranks that share `seed` start with the same Q.
  PowerSgd(std::span<const std::int64_t> shape, int rank, std::uint64_t seed);

  std::size_t rows() const noexcept { return rows_; }
  std::size_t cols() const noexcept { return cols_; }
  std::size_t rank() const noexcept { return rank_; }
  // The factors, column by column, all-reduced in place. [rank * rows], [rank * cols]
  std::span<float> p() const noexcept { return p_.host(); }
  std::span<float> q() const noexcept { return q_.host(); }

  // Adds the gradient to the residual (which may be absent: x = gradient) and computes P = x Q in
  // one pass over memory. Columns of Q that are zero, as a zero matrix leaves them, are drawn anew.
  // Throws Error{kNumeric} naming the tensor if x or P is not finite; Error{kConfig} if sizes
  // differ.
  void ComputeP(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info);

  // Makes the columns of P orthonormal, in double precision. A column that the columns before it
  // span to within the precision of P becomes zero. Cost: O(rows * rank^2), one thread.
  void Orthonormalize();

  // Q = x' P, with the x that ComputeP left in the source. One pass over memory.
  void ComputeQ(const QuantizeContext& context, const SelectSource& source);

  // out = P Q', [rows * cols]; the residual becomes x - out. One pass over memory.
  void Reconstruct(const QuantizeContext& context, const SelectSource& source,
                   std::span<float> out) const;

 private:
  void RedrawZeroColumns(const TensorInfo& info);

  std::size_t rows_ = 0;
  std::size_t cols_ = 0;
  std::size_t rank_ = 0;
  std::uint64_t seed_;
  Buffer<float> p_;
  Buffer<float> q_;
  Buffer<double> basis_;  // P in double precision
};

struct LowRankDescriptor {
  std::string_view name;
  std::string_view paper;
  int revision;
  std::string_view deviations;
  std::vector<OptionSpec> options;  // "rank"
};

const LowRankDescriptor& PowerSgdDescriptor();

}  // namespace sparfuse

namespace sparfuse::baselines {

// Options: `rank`, columns of the factors; `seed` of the first Q.
CollectiveDescriptor PowerSgdFactors();
CollectiveDescriptor PowerSgdBlocks();

}  // namespace sparfuse::baselines

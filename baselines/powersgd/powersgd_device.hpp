// Runs PowerSGD (powersgd.hpp) on a device: the same steps, between which two all-reduces lie.
//
// P, Q and what is applied are the host's but for the order of additions in single precision:
// within 1e-5 of the largest magnitude in each, for a P whose columns are far from dependent. The
// first Q, and columns drawn anew, are the host's to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "baselines/powersgd/matrix_product.hpp"
#include "baselines/powersgd/powersgd.hpp"
#include "core/device/device.hpp"

namespace sparfuse {

// One tensor on one rank. What takes a stream returns before it is done, in the order of that
// stream, waits for nothing and allocates nothing.
class PowerSgdOnDevice {
 public:
  // Precondition: PowerSgd::Compresses(shape, rank). multiplier: of this device; must outlive the
  // object, and others may share it.
  PowerSgdOnDevice(std::span<const std::int64_t> shape, int rank, std::uint64_t seed, Device device,
                   MatrixMultiplier& multiplier);

  std::size_t rows() const noexcept { return rows_; }
  std::size_t cols() const noexcept { return cols_; }
  std::size_t rank() const noexcept { return rank_; }
  // As PowerSgd's: what is all-reduced, in place.
  DeviceSpan<float> p(const Stream& stream) const { return p_.view(stream); }
  DeviceSpan<float> q(const Stream& stream) const { return q_.view(stream); }

  // As PowerSgd::ComputeP; throws Error{kConfig} if sizes differ.
  //
  //   not_finite  a word of the device, zero before: raised to the NotFiniteCode
  //               (core/sparsify/device_selection.hpp) of the first element of x that is not
  //               finite; without a residual, or where P overflows, of the element's row.
  void ComputeP(const Stream& stream, const SelectSource& source, const TensorInfo& info,
                std::uint32_t* not_finite);

  // As PowerSgd::Orthonormalize, by one block.
  void Orthonormalize(const Stream& stream);

  // As PowerSgd::ComputeQ.
  void ComputeQ(const Stream& stream, const SelectSource& source);

  // As PowerSgd::Reconstruct, with its bits for equal P and Q.
  void Reconstruct(const Stream& stream, const SelectSource& source, DeviceSpan<float> out) const;

 private:
  std::size_t rows_ = 0;
  std::size_t cols_ = 0;
  std::size_t rank_ = 0;
  std::uint64_t seed_;
  MatrixMultiplier& multiplier_;
  Buffer<float> p_;
  Buffer<float> q_;
  Buffer<double> basis_;
};

}  // namespace sparfuse

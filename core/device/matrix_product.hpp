// Multiplies matrices on a device; on CUDA with cuBLAS.
#pragma once

#include <cstddef>
#include <memory>

#include "core/device/device.hpp"

namespace sparfuse {

// c = op(a) op(b) in single precision (no TF32): c is [m x n], op(a) [m x k], op(b) [k x n]. All
// are column-major; the strides are the distances between columns. op is the transpose if
// transpose_a or transpose_b says so, else the identity.
struct MatrixProduct {
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  const float* a = nullptr;
  std::size_t a_stride = 0;
  const float* b = nullptr;
  std::size_t b_stride = 0;
  float* c = nullptr;
  std::size_t c_stride = 0;
};

// Computes products in the order of a stream. After construction it allocates nothing, so that a
// graph may record it. Equal arguments give equal bits on one kind of card. One caller at a time.
class MatrixMultiplier {
 public:
  virtual ~MatrixMultiplier() = default;
  // m, n, k >= 1, below 2^31.
  virtual void Multiply(const Stream& stream, const MatrixProduct& product) = 0;
};

// Throws Error{kUnsupported} for CUDA in a build without CUDA, and the errors of device/status.hpp.
std::unique_ptr<MatrixMultiplier> MakeMatrixMultiplier(Device device);

}  // namespace sparfuse

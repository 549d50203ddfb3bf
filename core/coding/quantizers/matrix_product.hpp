// Multiplies small matrices of floats with the kernels of PowerSGD: the same bits with every
// instruction set.
#pragma once

#include <cstddef>

namespace sparfuse {

// Row-major matrices, whose rows lie `stride` apart.
struct MatrixIn {
  const float* data;
  std::size_t stride;
};
struct MatrixOut {
  float* data;
  std::size_t stride;
};

// Computes to = left * right, of height x depth and depth x width. Skips four rows of `right` at
// once if all are zero, and four columns of a `left` of one row likewise. `to` does not overlap
// the others.
void Multiply(const MatrixIn& left, const MatrixIn& right, std::size_t height, std::size_t depth,
              std::size_t width, const MatrixOut& to);

}  // namespace sparfuse

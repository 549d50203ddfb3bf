#include "core/coding/quantizers/matrix_product.hpp"

#include <algorithm>

#include "core/base/cpu.hpp"
#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {
namespace {

bool IsZero(const float* x, std::size_t n) {
  return std::all_of(x, x + n, [](float value) { return value == 0.0f; });
}

}  // namespace

void Multiply(const MatrixIn& left, const MatrixIn& right, std::size_t height, std::size_t depth,
              std::size_t width, const MatrixOut& to) {
  const QuantizeKernels& kernels = QuantizeKernelsFor(ActiveIsa());
  for (std::size_t i = 0; i < height; ++i) std::fill_n(to.data + i * to.stride, width, 0.0f);
  for (std::size_t d = 0; d < depth; d += kLowRankRows) {
    const std::size_t rows = std::min(kLowRankRows, depth - d);
    const float* const from = right.data + d * right.stride;
    bool zero = height == 1 && IsZero(left.data + d, rows);
    if (height > 1) {
      zero = true;
      for (std::size_t i = 0; zero && i < rows; ++i) zero = IsZero(from + i * right.stride, width);
    }
    if (zero) continue;
    kernels.add_rows(from, right.stride, rows, width, left.data + d, left.stride, height, to.data,
                     to.stride);
  }
}

}  // namespace sparfuse

#include "workloads/optimizer/orthogonal.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "core/coding/quantizers/matrix_product.hpp"

namespace sparfuse::workloads {
namespace {

struct Step {
  float a, b, c;
};
constexpr Step kSteps[] = {{4.0848f, -6.8946f, 2.9270f},
                           {3.9505f, -6.3029f, 2.6377f},
                           {3.7418f, -5.5913f, 2.3037f},
                           {2.8769f, -3.1427f, 1.2046f},
                           {2.8366f, -3.0525f, 1.2012f}};

// Row-major.
struct Matrix {
  Matrix(std::size_t height, std::size_t width)
      : rows(height), cols(width), values(height * width) {}
  std::size_t rows, cols;
  std::vector<float> values;
};

void Transpose(const float* from, std::size_t rows, std::size_t cols, float* to) {
  constexpr std::size_t kTile = 16;  // both sides stay in cache
  for (std::size_t first = 0; first < rows; first += kTile) {
    const std::size_t last = std::min(rows, first + kTile);
    for (std::size_t j = 0; j < cols; ++j) {
      for (std::size_t i = first; i < last; ++i) to[j * rows + i] = from[i * cols + j];
    }
  }
}

void Product(const Matrix& left, const Matrix& right, Matrix& to) {
  assert(left.cols == right.rows && to.rows == left.rows && to.cols == right.cols);
  Multiply({left.values.data(), left.cols}, {right.values.data(), right.cols}, left.rows, left.cols,
           right.cols, {to.values.data(), to.cols});
}

}  // namespace

void Orthogonalise(std::span<float> x, std::size_t rows, std::size_t cols) {
  assert(x.size() == rows * cols);
  if (x.empty()) return;
  const bool wide = rows <= cols;  // A has the smaller side
  Matrix own(std::min(rows, cols), std::max(rows, cols));
  if (wide) {
    std::ranges::copy(x, own.values.begin());
  } else {
    Transpose(x.data(), rows, cols, own.values.data());
  }
  double squares = 0;
  for (const float value : own.values) squares += static_cast<double>(value) * value;
  const auto scale = static_cast<float>(1 / (std::sqrt(squares) + 1e-7));
  for (float& value : own.values) value *= scale;

  Matrix transposed(own.cols, own.rows), gram(own.rows, own.rows), square(own.rows, own.rows);
  Matrix product(own.rows, own.cols);
  for (const Step& step : kSteps) {
    Transpose(own.values.data(), own.rows, own.cols, transposed.values.data());
    Product(own, transposed, gram);
    Product(gram, gram, square);
    for (std::size_t i = 0; i < gram.values.size(); ++i)
      gram.values[i] = step.b * gram.values[i] + step.c * square.values[i];
    Product(gram, own, product);
    for (std::size_t i = 0; i < own.values.size(); ++i)
      own.values[i] = step.a * own.values[i] + product.values[i];
  }
  if (wide) {
    std::ranges::copy(own.values, x.begin());
  } else {
    Transpose(own.values.data(), own.rows, own.cols, x.data());
  }
}

}  // namespace sparfuse::workloads

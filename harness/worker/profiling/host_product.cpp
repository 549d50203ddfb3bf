#include "harness/worker/profiling/host_product.hpp"

#include <algorithm>

namespace sparfuse::harness {
namespace {

constexpr std::size_t kBlock = 64;

// Multiplies the rows of one block of c.
void MultiplyRows(const float* a, const float* b, float* c, std::size_t side, std::size_t first,
                  std::size_t last) {
  std::fill(c + first * side, c + last * side, 0.0f);
  for (std::size_t inner = 0; inner < side; inner += kBlock) {
    for (std::size_t column = 0; column < side; column += kBlock) {
      const std::size_t columns = std::min(kBlock, side - column);
      for (std::size_t row = first; row < last; ++row) {
        float* const out = c + row * side + column;
        for (std::size_t k = inner; k < std::min(side, inner + kBlock); ++k) {
          const float factor = a[row * side + k];
          const float* const in = b + k * side + column;
          for (std::size_t j = 0; j < columns; ++j) out[j] += factor * in[j];
        }
      }
    }
  }
}

}  // namespace

void MultiplyOnHost(std::span<const float> a, std::span<const float> b, std::span<float> c,
                    std::size_t side, ThreadPool& pool) {
  pool.ParallelFor((side + kBlock - 1) / kBlock, [&](std::size_t block, int) {
    MultiplyRows(a.data(), b.data(), c.data(), side, block * kBlock,
                 std::min(side, (block + 1) * kBlock));
  });
}

}  // namespace sparfuse::harness

// Computes norms (norm.hpp), and the factors that clip by them, in kernels.
//
// Reads x once and writes 8 bytes per tile of 32 KB; then one block sums the tiles.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/device/quads.hpp"
#include "core/feedback/norm/norm.hpp"

namespace sparfuse::gpu {

struct SumSquaresOfTiles {
  static constexpr int kThreads = kNormThreads;
  Quads quads;  // without skew: if x is not aligned, with loads of one element
  const float* x;
  double* tiles;

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, NoShared&) const {
    constexpr int kRows = kNormRows;
    const std::uint32_t first =
        (block.block() * Block::kWarps + block.warp()) * kRows * kWarp + block.lane();
    Float4 groups[kRows];
    for (int row = 0; row < kRows; ++row) {
      groups[row] = quads.Load(x, first + static_cast<std::uint32_t>(row * kWarp));
    }
    double lanes[4] = {};
    for (int row = 0; row < kRows; ++row) {
      for (int v = 0; v < 4; ++v) {
        const double value = groups[row].v[v];
        lanes[v] += value * value;
      }
    }
    const double sum = block.Sum((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
    if (block.thread() == 0) tiles[block.block()] = sum;
  }
};

// Sums the tiles. If `factor` is given, also computes ClipFactor from the sum.
struct SumTiles {
  static constexpr int kThreads = kNormThreads;
  const double* tiles;
  std::size_t size;
  double* sum;    // or null
  float* factor;  // or null
  double max_norm;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    double own = 0;
    for (std::size_t t = block.thread(); t < size; t += kThreads) own += tiles[t];
    const double all = block.Sum(own);
    if (block.thread() != 0) return;
    if (sum != nullptr) *sum = all;
    if (factor != nullptr) *factor = Factor(all);
  }

 private:
  SPARFUSE_DEVICE float Factor(double squares) const {
    if (!(squares - squares == 0)) return 1.0f;  // not finite
    const double share = max_norm / (std::sqrt(squares) + 1e-6);
    return static_cast<float>(share < 1 ? share : 1.0);
  }
};

}  // namespace sparfuse::gpu

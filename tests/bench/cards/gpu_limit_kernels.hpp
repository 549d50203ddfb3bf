// Holds the limit kernels that no selection on a card can beat: one read of the tensor, and the
// three streams of error feedback. They are as fast as possible and do nothing else.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/device/kernel.hpp"

namespace sparfuse::bench {

// sums[block] = sum of |x| over the block's share. x: 16-byte aligned, n a multiple of 4.
struct SumAbsOnCard {
  static constexpr int kThreads = 256;
  static constexpr unsigned kVectors = 4;  // loads in flight
  const float* x;
  std::uint64_t n;
  float* sums;

  SPARFUSE_DEVICE void operator()(auto& block, gpu::NoShared&) const {
    const auto* const from = reinterpret_cast<const gpu::Float4*>(x);
    const std::uint64_t vectors = n / 4;
    const std::uint64_t stride = std::uint64_t{block.blocks()} * kThreads * kVectors;
    float sum = 0;
    for (std::uint64_t i = std::uint64_t{block.block()} * kThreads * kVectors + block.thread();
         i < vectors; i += stride) {
      gpu::Float4 loaded[kVectors];
      for (unsigned v = 0; v < kVectors; ++v) {
        const std::uint64_t at = i + v * kThreads;
        loaded[v] = at < vectors ? block.LoadStreaming(from + at) : gpu::Float4{};
      }
      for (const gpu::Float4& four : loaded) {
        sum += (fabsf(four.v[0]) + fabsf(four.v[1])) + (fabsf(four.v[2]) + fabsf(four.v[3]));
      }
    }
    sum = block.Sum(sum);
    if (block.thread() == 0) sums[block.block()] = sum;
  }
};

// residual += x. Both 16-byte aligned, n a multiple of 4.
struct AddOnCard {
  static constexpr int kThreads = 256;
  static constexpr unsigned kVectors = 4;
  const float* x;
  std::uint64_t n;
  float* residual;

  SPARFUSE_DEVICE void operator()(auto& block, gpu::NoShared&) const {
    const auto* const from = reinterpret_cast<const gpu::Float4*>(x);
    auto* const to = reinterpret_cast<gpu::Float4*>(residual);
    const std::uint64_t vectors = n / 4;
    const std::uint64_t stride = std::uint64_t{block.blocks()} * kThreads * kVectors;
    for (std::uint64_t i = std::uint64_t{block.block()} * kThreads * kVectors + block.thread();
         i < vectors; i += stride) {
      gpu::Float4 sum[kVectors] = {};
      gpu::Float4 old[kVectors] = {};
      for (unsigned v = 0; v < kVectors; ++v) {
        const std::uint64_t at = i + v * kThreads;
        if (at < vectors) sum[v] = block.LoadStreaming(from + at);
        if (at < vectors) old[v] = block.LoadStreaming(to + at);
      }
      for (unsigned v = 0; v < kVectors; ++v) {
        const std::uint64_t at = i + v * kThreads;
        if (at >= vectors) break;
        for (unsigned c = 0; c < 4; ++c) sum[v].v[c] += old[v].v[c];
        to[at] = sum[v];
      }
    }
  }
};

}  // namespace sparfuse::bench

// Advances and masks velocities in kernels (momentum.hpp). Advancing reads gradient and
// velocity and writes the velocity, and with nesterov the growth: three or four streams.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/device/quads.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse::gpu {

template <bool kNesterov>
struct AdvanceVelocities {
  static constexpr int kThreads = kElementwiseThreads;
  Quads quads;
  const float* gradient;
  const float* factor;  // or null
  float momentum;
  float* velocity;
  float* growth;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const float scale = factor == nullptr ? 1.0f : *factor;
    Float4 g[kQuadsPerThread];
    Float4 u[kQuadsPerThread];
    for (int j = 0; j < kQuadsPerThread; ++j) {
      g[j] = quads.Load(gradient, ElementwiseQuad(block, j));
      u[j] = quads.Load(velocity, ElementwiseQuad(block, j));
    }
    for (int j = 0; j < kQuadsPerThread; ++j) {
      Float4 grown;
      for (int v = 0; v < 4; ++v) {
        const float step = scale * g[j].v[v];
        if constexpr (kNesterov) {
          u[j].v[v] = momentum * (u[j].v[v] + step);
          grown.v[v] = u[j].v[v] + step;
        } else {
          u[j].v[v] = momentum * u[j].v[v] + step;
        }
      }
      quads.Store(velocity, ElementwiseQuad(block, j), u[j]);
      if constexpr (kNesterov) quads.Store(growth, ElementwiseQuad(block, j), grown);
    }
  }
};

struct MaskVelocities {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 4;
  const std::uint32_t* indices;
  const SlotReport* report;
  std::uint32_t capacity;
  float* velocity;

  // A slot's capacity is usually four times the selected count.
  static std::size_t BlocksFor(std::size_t capacity) {
    return capacity / (4 * kPerThread * kThreads) + 1;
  }

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t count = report->count < capacity ? report->count : capacity;
    const std::uint64_t step = std::uint64_t{block.blocks()} * kPerThread * kThreads;
    for (std::uint64_t at = std::uint64_t{block.block()} * kPerThread * kThreads; at < count;
         at += step) {
      std::uint32_t index[kPerThread];
      for (std::uint32_t j = 0; j < kPerThread; ++j) {
        const std::uint64_t i = at + j * kThreads + block.thread();
        index[j] = i < count ? indices[i] : 0;
      }
      for (std::uint32_t j = 0; j < kPerThread; ++j) {
        if (at + j * kThreads + block.thread() < count) velocity[index[j]] = 0.0f;
      }
    }
  }
};

}  // namespace sparfuse::gpu

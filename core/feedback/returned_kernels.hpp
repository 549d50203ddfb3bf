// Adds returned elements to a residual in kernels (returned.hpp): one read of the payload.
#pragma once

#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/payload/accumulate_kernels.hpp"

namespace sparfuse::gpu {

struct AddReturnedElements {
  static constexpr int kThreads = 256;
  static constexpr std::uint32_t kPerThread = 4;
  static constexpr std::uint32_t kPerBlock = kPerThread * kThreads;
  PayloadTable payload;  // one
  std::uint64_t begin;
  std::uint64_t end;
  float* residual;  // or null
  std::uint32_t* taken;
  std::uint64_t* fault;

  SPARFUSE_DEVICE void operator()(auto& block, NoShared&) const {
    const std::uint32_t count = payload.Count(0);
    const std::uint32_t* const indices = payload.indices[0];
    std::uint32_t in_part = 0;
    for (std::uint32_t j = 0; j < kPerThread; ++j) {
      const std::uint32_t i = block.block() * kPerBlock + j * kThreads + block.thread();
      if (i >= count) continue;
      const std::uint32_t index = indices[i];
      if (i > 0 && index <= indices[i - 1]) block.AtomicMax(fault, PayloadFaultCode(0, i));
      if (index < begin || index >= end) continue;
      ++in_part;
      if (residual != nullptr) residual[index - begin] += payload.values[0][i];
    }
    in_part = block.Sum(in_part);
    if (block.thread() == 0 && in_part > 0) block.AtomicAdd(taken, in_part);
  }
};

}  // namespace sparfuse::gpu

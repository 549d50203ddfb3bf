// Draws a stratified random sample (sample.hpp) by all threads of a block.
#pragma once

#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan/sample.hpp"

namespace sparfuse::gpu {

// at[i] = the i-th of `lines` lines of a sample of n elements. By all threads of a block, which
// then see them: two divisions in 64 bits a line, not an element. at: [lines], shared.
template <class Block>
SPARFUSE_DEVICE void FindSampledLines(Block& block, const RandomStream& stream, std::uint64_t n,
                                      std::uint32_t lines, std::uint32_t* at) {
  for (std::uint32_t i = block.thread(); i < lines; i += Block::kThreads) {
    at[i] = static_cast<std::uint32_t>(SampledLine(stream, n / kLine, lines, i));
  }
  block.Sync();
}

// Where element s of the sample is in the tensor.
SPARFUSE_DEVICE std::uint64_t SampledElement(const std::uint32_t* at, std::uint32_t s) {
  return std::uint64_t{at[s / kLine]} * kLine + s % kLine;
}

}  // namespace sparfuse::gpu

// Samples a tensor's 64-byte lines, at random in strata. Memory transfers whole lines, so that no
// fetched byte is wasted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/random_stream.hpp"
#include "core/device/kernel.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

inline constexpr std::size_t kLine = 16;  // floats

// The i-th line of a sample of `lines` lines from a tensor with `all` lines. It is drawn from the
// i-th of `lines` equal parts, the same in every run. Precondition: i < lines <= all.
constexpr std::uint64_t SampledLine(const RandomStream& stream, std::uint64_t all,
                                    std::uint64_t lines, std::uint64_t i) {
  const std::uint64_t first = i * all / lines;
  const std::uint64_t width = (i + 1) * all / lines - first;
  return first + stream.Below(width, i);
}

// Calls body(i, at) for i in [0, lines): `at` is the first of the kLine elements of SampledLine.
// Precondition: 1 <= lines <= n / kLine.
void ForSampledLines(std::size_t n, std::size_t lines, const TensorInfo& info, const auto& body) {
  const RandomStream stream(0, info.id, info.step);
  const std::size_t all = n / kLine;
  for (std::size_t i = 0; i < lines; ++i) body(i, SampledLine(stream, all, lines, i) * kLine);
}

}  // namespace sparfuse

namespace sparfuse::gpu {

// at[i] = the i-th of `lines` sampled lines of a tensor of n elements. All threads of a block call
// it and then see the result. It costs two 64-bit divisions a line instead of an element. at:
// [lines], shared.
SPARFUSE_DEVICE void FindSampledLines(auto& block, const RandomStream& stream, std::uint64_t n,
                                      std::uint32_t lines, std::uint32_t* at) {
  for (std::uint32_t i = block.thread(); i < lines; i += block.kThreads) {
    at[i] = static_cast<std::uint32_t>(SampledLine(stream, n / kLine, lines, i));
  }
  block.Sync();
}

// The index in the tensor of element s of the sample.
SPARFUSE_DEVICE std::uint64_t SampledElement(const std::uint32_t* at, std::uint32_t s) {
  return std::uint64_t{at[s / kLine]} * kLine + s % kLine;
}

}  // namespace sparfuse::gpu

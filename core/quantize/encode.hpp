// Holds what the quantizers' encoders share: the checks, the pass over blocks, and their
// descriptors.
#pragma once

#include <algorithm>
#include <atomic>

#include "core/base/cpu.hpp"
#include "core/quantize/quantizer.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

QuantizerDescriptor Fp32Descriptor();
QuantizerDescriptor Fp16Descriptor();
QuantizerDescriptor QsgdDescriptor();
QuantizerDescriptor SignDescriptor();

constexpr std::size_t RoundUp(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Checks the arguments of Quantizer::Encode and EncodeOnDevice but for the device of memory. Throws
// Error{kConfig}.
void CheckEncodeArguments(const Quantizer& quantizer, const SelectSource& source,
                          const TensorInfo& info, std::size_t out_bytes);

// Checks the arguments of Quantizer::Encode and sets the padding at the end of `out` to zero.
// Throws Error{kConfig}; Error{kUnsupported} for memory on a device.
SelectInput BeginEncode(const Quantizer& quantizer, const SelectSource& source,
                        const TensorInfo& info, std::span<std::byte> out);

// Throws Error{kComm} unless 0 <= scale < infinity: a scale or norm at the head of a payload.
void CheckScale(const Quantizer& quantizer, float scale);

// Calls body(begin, size) for the blocks of n elements, kBlock each; chunks of them on the pool.
template <class Body>
void ForBlocks(std::size_t n, ThreadPool& pool, const Body& body) {
  const std::size_t chunk = n < kParallelElements ? std::max<std::size_t>(n, 1) : kChunk;
  pool.ParallelFor((n + chunk - 1) / chunk, [&](std::size_t c, int) {
    const std::size_t end = std::min(n, (c + 1) * chunk);
    for (std::size_t begin = c * chunk; begin < end; begin += kBlock) {
      body(begin, std::min(kBlock, end - begin));
    }
  });
}

// The first pass over x: adds the residual and calls body(begin, size) for each block while it is
// in cache, but for blocks that are not finite. Throws Error{kNumeric} if there were such.
template <class Body>
void ForInputBlocks(const QuantizeContext& context, SelectInput& input, const TensorInfo& info,
                    const Body& body) {
  const SelectKernels& kernels = SelectKernelsFor(ActiveIsa());
  const float* const gradient = input.gradient;
  float* const residual = input.residual;
  input.pending = false;
  std::atomic<bool> finite{true};
  ForBlocks(input.n, *context.pool, [&](std::size_t begin, std::size_t size) {
    const std::uint32_t largest =
        kernels.add(gradient + begin, residual == nullptr ? nullptr : residual + begin, size);
    if (largest < kInfinityKey) {
      body(begin, size);
    } else {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!finite) ThrowNotFinite(input, info);
}

}  // namespace sparfuse

// Declares the parts that the quantizers' encoders share: checks, the pass over blocks, and
// descriptors.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/base/cpu.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

// QuantizerDescriptor::make of a quantizer without options and random numbers.
template <class T>
std::unique_ptr<Quantizer> MakePlainQuantizer(const Options& /*resolved*/, std::uint64_t /*seed*/) {
  return std::make_unique<T>();
}

QuantizerDescriptor Fp32Descriptor();
QuantizerDescriptor Fp16Descriptor();
QuantizerDescriptor QsgdDescriptor();
QuantizerDescriptor SignDescriptor();
QuantizerDescriptor SignBytesDescriptor();

constexpr std::size_t RoundUp(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Checks the arguments of Quantizer::Encode and EncodeOnDevice except for the device of memory.
// Throws Error{kConfig}.
void CheckEncodeArguments(const Quantizer& quantizer, const SelectSource& source,
                          const TensorInfo& info, std::size_t out_bytes);

// Checks the arguments of Quantizer::Encode and sets the padding at the end of `out` to zero.
// Throws Error{kConfig}; Error{kUnsupported} for memory on a device.
SelectInput BeginEncode(const Quantizer& quantizer, const SelectSource& source,
                        const TensorInfo& info, std::span<std::byte> out);

// Throws Error{kComm} unless 0 <= scale < infinity: a scale or norm at the head of a payload.
void CheckScale(const Quantizer& quantizer, float scale);

// Calls body(begin, size) for the blocks of n elements, kBlock each; chunks of them on the pool.
void ForBlocks(std::size_t n, ThreadPool& pool, const auto& body) {
  const std::size_t chunk = n < kParallelElements ? std::max<std::size_t>(n, 1) : kChunk;
  pool.ParallelFor((n + chunk - 1) / chunk, [&](std::size_t c, int) {
    const std::size_t end = std::min(n, (c + 1) * chunk);
    for (std::size_t begin = c * chunk; begin < end; begin += kBlock) {
      body(begin, std::min(kBlock, end - begin));
    }
  });
}

// Makes the first pass over x: adds the residual and calls body(begin, size) for each finite block
// while it is in cache. Throws Error{kNumeric} if a block is not finite.
void ForInputBlocks(const QuantizeContext& context, SelectInput& input, const TensorInfo& info,
                    const auto& body) {
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

// Arguments of Quantizer::EncodeOnDevice.
struct DeviceEncode {
  const DeviceContext& context;
  int rank;
  const SelectSource& source;
  const TensorInfo& info;
  DeviceSpan<std::byte> out;
  std::uint32_t* not_finite;
};

// Arguments of Quantizer::AccumulateOnDevice.
struct DeviceAccumulate {
  const DeviceContext& context;
  std::span<const std::byte* const> payloads;
  float scale;
  DeviceSpan<float> out;
  std::uint64_t* fault;
};

// A quantizer with kernels. EncodeThere and AccumulateThere do the work of EncodeOnDevice, whose
// arguments have been checked, and of AccumulateOnDevice.
class DeviceQuantizer : public Quantizer {
 public:
  bool WorksOnDevice() const noexcept final { return true; }
  void EncodeOnDevice(const DeviceContext& context, int rank, const SelectSource& source,
                      const TensorInfo& info, DeviceSpan<std::byte> out,
                      std::uint32_t* not_finite) const final;
  void AccumulateOnDevice(const DeviceContext& context, std::span<const std::byte* const> payloads,
                          float scale, DeviceSpan<float> out, std::uint64_t* fault) const final;

 protected:
  virtual void EncodeThere(const DeviceEncode& encode) const = 0;
  virtual void AccumulateThere(const DeviceAccumulate& accumulate) const = 0;
};

// The norm as a float might be rounded below the largest magnitude, or overflow; this prevents
// both, so that no level is above q.
SPARFUSE_HOST_DEVICE float QsgdNorm(double sum_squares, std::uint32_t max_key) {
  constexpr auto kMost = static_cast<double>(std::numeric_limits<float>::max());
  const double root = std::sqrt(sum_squares);
  const auto norm = static_cast<float>(root < kMost ? root : kMost);
  const auto largest = std::bit_cast<float>(max_key);
  return norm < largest ? largest : norm;
}

// The step between levels. Level q must not overflow, but q times norm / q can, by rounding.
SPARFUSE_HOST_DEVICE float QsgdStep(float norm, float levels) {
  const float step = norm / levels;
  return KeyOf(step * levels) < kInfinityKey
             ? step
             : std::bit_cast<float>(std::bit_cast<std::uint32_t>(step) - 1);
}

}  // namespace sparfuse

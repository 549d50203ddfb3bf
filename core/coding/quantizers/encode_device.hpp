// Launches the kernels that the quantizers share (encode_kernels.hpp).
#pragma once

#include <algorithm>

#include "core/coding/quantizers/encode_kernels.hpp"
#include "core/device/launch.hpp"

namespace sparfuse {

inline gpu::EncodeInput EncodeInputOf(const DeviceEncode& encode) {
  const SelectSource& source = encode.source;
  return {source.gradient.data, source.residual.size == 0 ? nullptr : source.residual.data,
          source.gradient.size, encode.not_finite};
}

inline std::size_t EncodeBlocksOf(std::size_t n) { return (n + kBlock - 1) / kBlock; }

inline gpu::Quads WithoutSkew(gpu::Quads quads) {
  if (quads.skew != 0) quads = gpu::Quads(quads.n, 0, false);
  return quads;
}

template <bool kHalves>
void EncodeWholeOnDevice(const DeviceEncode& encode) {
  const gpu::EncodeInput input = EncodeInputOf(encode);
  const auto* const floats = kHalves ? nullptr : reinterpret_cast<const float*>(encode.out.data);
  const gpu::Quads quads =
      WithoutSkew(gpu::QuadsOf(input.n, input.gradient, input.residual, floats));
  gpu::Launch(encode.context.stream, gpu::ElementwiseBlocks(quads),
              gpu::EncodeWhole<kHalves>{quads, input, encode.out.data}, encode.context.only_if);
}

// Leaves x in the residual, if there is one, and writes the payload's head to its first word.
template <bool kSquares>
void MeasureOnDevice(const DeviceEncode& encode, std::uint32_t* words) {
  const DeviceContext& context = encode.context;
  const gpu::EncodeInput input = EncodeInputOf(encode);
  const std::size_t blocks = EncodeBlocksOf(input.n);
  auto* const sums = context.workspace->Get<double>(context.stream, kUseSums, blocks);
  auto* const largest = context.workspace->Get<std::uint32_t>(context.stream, kUseLargest, blocks);
  gpu::Launch(context.stream, blocks, gpu::MeasureBlocks<kSquares>{input, sums, largest, words},
              context.only_if);
  gpu::Launch(context.stream, 1,
              gpu::ChainBlocks<kSquares>{sums, largest, blocks, input.n,
                                         reinterpret_cast<float*>(encode.out.data)},
              context.only_if);
}

template <class Decode>
void AccumulateDecoded(const DeviceAccumulate& accumulate, const Decode& decode) {
  using Kernel = gpu::AccumulateEncoded<Decode>;
  const std::size_t n = accumulate.out.size;
  const std::size_t payloads = accumulate.payloads.size();
  for (std::size_t first = 0; first == 0 || first < payloads; first += gpu::kMaxEncoded) {
    const std::size_t size = std::min<std::size_t>(gpu::kMaxEncoded, payloads - first);
    Kernel kernel{decode,
                  {},
                  static_cast<std::uint32_t>(size),
                  static_cast<std::uint32_t>(first),
                  n,
                  1.0f,
                  first > 0,
                  accumulate.out.data,
                  accumulate.fault};
    if (first + size == payloads) kernel.scale = accumulate.scale;
    std::copy_n(accumulate.payloads.data() + first, size, kernel.payloads);
    gpu::Launch(accumulate.context.stream, (n + Kernel::kPerBlock - 1) / Kernel::kPerBlock, kernel,
                accumulate.context.only_if);
  }
}

}  // namespace sparfuse

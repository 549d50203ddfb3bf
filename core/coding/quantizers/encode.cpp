#include "core/coding/quantizers/encode.hpp"

#include <vector>

#include "core/base/error.hpp"

namespace sparfuse {
void DeviceQuantizer::EncodeOnDevice(const DeviceContext& context, int rank,
                                     const SelectSource& source, const TensorInfo& info,
                                     DeviceSpan<std::byte> out, std::uint32_t* not_finite) const {
  CheckEncodeArguments(*this, source, info, out.size);
  RequireOnDevice(name(), context, source, info);
  EncodeThere({context, rank, source, info, out, not_finite});
}

void DeviceQuantizer::AccumulateOnDevice(const DeviceContext& context,
                                         std::span<const std::byte* const> payloads, float scale,
                                         DeviceSpan<float> out, std::uint64_t* fault) const {
  AccumulateThere({context, payloads, scale, out, fault});
}

void Quantizer::EncodeOnDevice(const DeviceContext& context, int rank, const SelectSource& source,
                               const TensorInfo& info, DeviceSpan<std::byte> out,
                               std::uint32_t* /*not_finite*/) const {
  CheckEncodeArguments(*this, source, info, out.size);
  RequireOnDevice(name(), context, source, info);
  if (!IsWanted(context)) return;
  const Stream& stream = context.stream;
  const std::size_t n = source.gradient.size;
  const Buffer<float> gradient(n);
  const Buffer<float> residual(source.residual.size);
  const Buffer<std::byte> encoded(out.size);
  const gpu::QuietScope quiet(stream);
  gpu::CopyAsync(stream, gradient.data(), source.gradient.data, n * sizeof(float));
  gpu::CopyAsync(stream, residual.data(), source.residual.data, residual.size() * sizeof(float));
  gpu::Synchronize(stream);
  Encode({context.host->pool, context.host->workspace, rank},
         {{gradient.data(), n, {}}, residual.view()}, info, encoded.host());
  gpu::CopyAsync(stream, out.data, encoded.data(), encoded.size());
  gpu::CopyAsync(stream, source.residual.data, residual.data(), residual.size() * sizeof(float));
  gpu::Synchronize(stream);
}

void Quantizer::AccumulateOnDevice(const DeviceContext& context,
                                   std::span<const std::byte* const> payloads, float scale,
                                   DeviceSpan<float> out, std::uint64_t* /*fault*/) const {
  if (!IsWanted(context)) return;
  const std::size_t bytes = EncodedBytes(out.size);
  const std::size_t room = RoundUp(bytes, 64);
  const Buffer<std::byte> copies(room * payloads.size());
  const Buffer<float> sums(out.size);
  const gpu::QuietScope quiet(context.stream);
  std::vector<std::span<const std::byte>> on_host;
  for (const std::byte* const payload : payloads) {
    std::byte* const copy = copies.data() + on_host.size() * room;
    gpu::CopyAsync(context.stream, copy, payload, bytes);
    on_host.emplace_back(copy, bytes);
  }
  gpu::Synchronize(context.stream);
  AccumulateQuantized(*this, on_host, scale, sums.host(), *context.host->pool);
  gpu::CopyAsync(context.stream, out.data, sums.data(), out.size * sizeof(float));
  gpu::Synchronize(context.stream);
}

}  // namespace sparfuse

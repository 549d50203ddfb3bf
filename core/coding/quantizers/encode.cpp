#include "core/coding/quantizers/encode.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/quantizers/encode_kernels.hpp"
#include "core/device/launch.hpp"

namespace sparfuse {
namespace {

gpu::EncodeInput InputOf(const DeviceEncode& encode) {
  const SelectSource& source = encode.source;
  return {source.gradient.data, source.residual.size == 0 ? nullptr : source.residual.data,
          source.gradient.size, encode.not_finite};
}

std::size_t BlocksOf(std::size_t n) { return (n + kBlock - 1) / kBlock; }

gpu::Quads WithoutSkew(gpu::Quads quads) {
  if (quads.skew != 0) quads = gpu::Quads(quads.n, 0, false);
  return quads;
}

template <bool kHalves>
void EncodeWholeOnDevice(const DeviceEncode& encode) {
  const gpu::EncodeInput input = InputOf(encode);
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
  const gpu::EncodeInput input = InputOf(encode);
  const std::size_t blocks = BlocksOf(input.n);
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
void AccumulateOnDevice(const DeviceAccumulate& accumulate, const Decode& decode) {
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

// Checks the arguments of Quantizer::EncodeOnDevice. Throws Error{kConfig}; Error{kInternal} for
// memory that is not on the stream's device.
void CheckEncode(const Quantizer& quantizer, const DeviceContext& context,
                 const SelectSource& source, const TensorInfo& info, std::size_t out_bytes) {
  CheckEncodeArguments(quantizer, source, info, out_bytes);
  const Device device = context.stream.device;
  if (device.kind == DeviceKind::kHost || source.gradient.stream.device != device ||
      (source.residual.size > 0 && source.residual.stream.device != device)) {
    SPARFUSE_THROW(kInternal, quantizer.name(), ": ", Describe(info),
                   ": gradient and residual are not on the stream's device");
  }
}

}  // namespace

void DeviceQuantizer::EncodeOnDevice(const DeviceContext& context, int rank,
                                     const SelectSource& source, const TensorInfo& info,
                                     DeviceSpan<std::byte> out, std::uint32_t* not_finite) const {
  CheckEncode(*this, context, source, info, out.size);
  EncodeThere({context, rank, source, info, out, not_finite});
}

void DeviceQuantizer::AccumulateOnDevice(const DeviceContext& context,
                                         std::span<const std::byte* const> payloads, float scale,
                                         DeviceSpan<float> out, std::uint64_t* fault) const {
  AccumulateThere({context, payloads, scale, out, fault});
}

void EncodeFp32OnDevice(const DeviceEncode& encode) { EncodeWholeOnDevice<false>(encode); }

void EncodeFp16OnDevice(const DeviceEncode& encode) { EncodeWholeOnDevice<true>(encode); }

void EncodeSignOnDevice(const DeviceEncode& encode) {
  MeasureOnDevice<false>(encode, reinterpret_cast<std::uint32_t*>(encode.out.data + sizeof(float)));
  const gpu::EncodeInput input = InputOf(encode);
  if (input.residual == nullptr) return;
  const gpu::Quads quads = gpu::QuadsOf(input.n, input.residual);
  gpu::Launch(
      encode.context.stream, gpu::ElementwiseBlocks(quads),
      gpu::KeepBesideSigns{quads, input.residual, reinterpret_cast<const float*>(encode.out.data)},
      encode.context.only_if);
}

void EncodeQsgdOnDevice(const DeviceEncode& encode, const QsgdForm& form, std::uint64_t key) {
  const gpu::EncodeInput input = InputOf(encode);
  const gpu::LevelCoding coding{form.levels, key,
                                reinterpret_cast<std::int8_t*>(encode.out.data + form.codes_at),
                                input.residual};
  const DeviceContext& context = encode.context;
  auto* const norms = reinterpret_cast<float*>(encode.out.data);
  if (form.bucket != 0) {
    gpu::Launch(context.stream, BlocksOf(input.n),
                gpu::EncodeBuckets{input, coding, static_cast<std::uint32_t>(form.bucket), norms},
                context.only_if);
    return;
  }
  MeasureOnDevice<true>(encode, nullptr);
  const float* const x = input.residual == nullptr ? input.gradient : input.residual;
  gpu::Launch(context.stream, gpu::EncodeLevels::Blocks(input.n),
              gpu::EncodeLevels{x, input.n, coding, norms}, context.only_if);
}

void AccumulateFp32OnDevice(const DeviceAccumulate& accumulate) {
  AccumulateOnDevice(accumulate, gpu::DecodeFp32{});
}

void AccumulateFp16OnDevice(const DeviceAccumulate& accumulate) {
  AccumulateOnDevice(accumulate, gpu::DecodeFp16{});
}

void AccumulateSignOnDevice(const DeviceAccumulate& accumulate) {
  AccumulateOnDevice(accumulate, gpu::DecodeSign{});
}

void AccumulateQsgdOnDevice(const DeviceAccumulate& accumulate, const QsgdForm& form) {
  const auto bucket = static_cast<std::uint32_t>(form.bucket);
  const int bits = bucket == 0 ? 63 : std::countr_zero(bucket);
  AccumulateOnDevice(accumulate, gpu::DecodeQsgd{form.codes_at, bucket, bits, form.levels});
}

void Quantizer::EncodeOnDevice(const DeviceContext& context, int rank, const SelectSource& source,
                               const TensorInfo& info, DeviceSpan<std::byte> out,
                               std::uint32_t* /*not_finite*/) const {
  CheckEncode(*this, context, source, info, out.size);
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

#include "core/quantize/coding/payload_coding_device.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/quantize/coding/payload_coding_kernels.hpp"

namespace sparfuse {
namespace {

gpu::CodedLayout LayoutOf(PayloadCoding coding) {
  return {coding.values == ValueCoding::kF16, coding.indices == IndexCoding::kDelta};
}

std::size_t Blocks(std::size_t size, std::size_t per_block) {
  return (size + per_block - 1) / per_block;
}

}  // namespace

void RoundToCodingOnDevice(const Stream& stream, PayloadCoding coding, const DeviceSlot& slot,
                           DeviceSpan<float> residual) {
  if (coding.values == ValueCoding::kF32) return;
  // A slot usually has room for four times what is selected.
  gpu::Launch(stream, Blocks(slot.capacity, 4 * gpu::RoundToHalves::kPerBlock),
              gpu::RoundToHalves{slot.indices, slot.values, slot.report,
                                 static_cast<std::uint32_t>(slot.capacity),
                                 residual.size == 0 ? nullptr : residual.data});
}

void EncodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace, PayloadCoding coding,
                           const DevicePayload& payload, std::size_t n, DeviceSpan<std::byte> out,
                           std::uint32_t* out_bytes) {
  if (out.size < EncodedBytesBound(coding, payload.count, n)) {
    SPARFUSE_THROW(kInternal, "a sparse payload of up to " + std::to_string(payload.count) +
                                  " elements of " + std::to_string(n) + " has room for " +
                                  std::to_string(out.size) + " bytes; expected " +
                                  std::to_string(EncodedBytesBound(coding, payload.count, n)));
  }
  using Kernel = gpu::EncodeElements;
  const gpu::EncodeSource source{payload.indices, payload.values,
                                 static_cast<std::uint32_t>(payload.count), payload.count_word};
  const std::size_t blocks = std::max<std::size_t>(1, Blocks(payload.count, Kernel::kPerBlock));
  std::uint32_t* escapes = nullptr;
  if (coding.indices == IndexCoding::kDelta) {
    escapes = workspace.Get<std::uint32_t>(stream, kUseTiles, blocks);
    gpu::Launch(stream, blocks, gpu::CountEscapes{source, escapes});
  }
  gpu::Launch(stream, blocks,
              Kernel{source, LayoutOf(coding), escapes, out.data, out.size, out_bytes});
}

DevicePayload DecodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                                    PayloadCoding coding, DeviceSpan<const std::byte> bytes,
                                    std::size_t n, DeviceSpan<std::uint32_t> indices,
                                    DeviceSpan<float> values, std::uint32_t* count, int rank,
                                    std::uint64_t* fault) {
  assert(indices.size == values.size);
  const gpu::CodedPayload coded{bytes.data, bytes.size, LayoutOf(coding)};
  const auto number = static_cast<std::uint32_t>(rank);
  constexpr std::size_t kTile = gpu::DecodeElements::kPerBlock;
  // An element without gaps takes 6 bytes or more; of gaps, which may be escaped, bytes bound the
  // words.
  const std::size_t most =
      coded.layout.delta ? bytes.size / 2 : std::min(indices.size, bytes.size / 6);
  const std::size_t tiles = std::max<std::size_t>(1, Blocks(most, kTile));
  gpu::GapTile* of_tiles = nullptr;
  if (coded.layout.delta) of_tiles = workspace.Get<gpu::GapTile>(stream, kUseTiles, tiles);
  gpu::Launch(stream, tiles,
              gpu::DecodeElements{coded, n, static_cast<std::uint32_t>(indices.size), indices.data,
                                  values.data, count, of_tiles, number, fault});
  if (coded.layout.delta) {
    auto* const starts = workspace.Get<gpu::GapStart>(stream, kUseTileStarts, tiles);
    gpu::Launch(stream, 1, gpu::ChainTiles{coded, count, of_tiles, starts, number, fault});
    gpu::Launch(stream, tiles,
                gpu::WriteIndices{coded, n, count, starts, indices.data, number, fault});
  }
  return {indices.data, values.data, indices.size, count};
}

}  // namespace sparfuse

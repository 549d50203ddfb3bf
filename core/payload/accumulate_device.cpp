#include "core/payload/accumulate_device.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/error.hpp"
#include "core/device/launch.hpp"
#include "core/payload/accumulate_kernels.hpp"

namespace sparfuse {
namespace {

using gpu::kMaxParts;
using gpu::kMaxPayloads;
using gpu::kSector;
using gpu::kSumChunk;

// Calls body(first, size) for groups that fit one launch, at least once.
void ForGroups(std::size_t count, std::size_t most, const auto& body) {
  for (std::size_t first = 0; first == 0 || first < count; first += most) {
    body(first, std::min(most, count - first));
  }
}

std::uint32_t SkewOf(const float* out) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(out) / sizeof(float) %
                                    kSector);
}

std::size_t Chunks(std::size_t n, std::size_t skew) {
  return (n + skew + kSumChunk - 1) / kSumChunk;
}

}  // namespace

gpu::PayloadTable PayloadTableOf(std::span<const DevicePayload> payloads, std::size_t number) {
  gpu::PayloadTable table{};
  table.size = static_cast<std::uint32_t>(payloads.size());
  table.number = static_cast<std::uint32_t>(number);
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    table.indices[p] = payloads[p].indices;
    table.values[p] = payloads[p].values;
    table.counts[p] = static_cast<std::uint32_t>(payloads[p].count);
    table.count_words[p] = payloads[p].count_word;
  }
  return table;
}

void CheckPayloadFault(std::uint64_t fault) {
  if (fault == 0) return;
  const std::uint64_t place = ~fault;
  SPARFUSE_THROW(kComm, "sparse payload ", place >> 32, " is corrupt at element ",
                 place & 0xffffffffu,
                 ": expected increasing indices below the size of the exchanged range, "
                 "finite values, and the length of its elements");
}

std::size_t TouchedWords(std::size_t n) { return Chunks(n, kSector - 1) * gpu::kChunkWords; }

void AccumulateSparseOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                              std::span<const DevicePayload> payloads, const Window& window,
                              float scale, DeviceSpan<float> out, std::uint64_t* fault,
                              std::uint32_t* touched) {
  assert(window.first + out.size <= window.whole);
  if (out.size == 0) return;
  gpu::SumWindow sums{window.first, window.whole, out.size, SkewOf(out.data), 0};
  sums.chunks = static_cast<std::uint32_t>(Chunks(out.size, sums.skew));
  auto* const starts = workspace.Get<std::uint32_t>(
      stream, kUseStarts, std::min<std::size_t>(payloads.size(), kMaxPayloads) * (sums.chunks + 1));
  ForGroups(payloads.size(), kMaxPayloads, [&](std::size_t first, std::size_t size) {
    const gpu::PayloadTable table = PayloadTableOf(payloads.subspan(first, size), first);
    gpu::FindChunks find{table, {}, sums, starts, fault};
    for (std::size_t p = 0; p < size; ++p) {
      find.first_block[p + 1] = find.first_block[p] + find.BlocksFor(table.counts[p]);
    }
    gpu::Launch(stream, find.first_block[size], find);
    const bool last = first + size == payloads.size();
    gpu::Launch(
        stream, sums.chunks,
        gpu::SumChunks{table, sums, starts, out.data, touched, last ? scale : 1.0f, first > 0});
  });
}

void ScaleDenseOnDevice(const Stream& stream, DeviceSpan<const float> in, float scale,
                        DeviceSpan<float> out) {
  assert(in.size == out.size);
  const gpu::Quads quads = gpu::QuadsOf(in.size, in.data, out.data);
  gpu::Launch(stream, gpu::ElementwiseBlocks(quads),
              gpu::ScaleElements{quads, in.data, out.data, scale});
}

void CopyFiniteOnDevice(const Stream& stream, DeviceSpan<const float> from, DeviceSpan<float> to,
                        std::uint32_t* not_finite) {
  assert(from.size == to.size);
  const gpu::Quads quads = gpu::QuadsOf(from.size, from.data, to.data);
  gpu::Launch(stream, gpu::ElementwiseBlocks(quads),
              gpu::CopyFiniteElements{quads, from.data, to.data, not_finite});
}

void MergeSlotsOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                        std::span<const MergePart> parts, const MergedPayload& out) {
  std::size_t capacity = 0;
  for (const MergePart& part : parts) capacity += part.slot.capacity;
  if (capacity > out.capacity) {
    SPARFUSE_THROW(kInternal, "a payload has room for ", out.capacity,
                   " elements, but its slots hold ", capacity);
  }
  const auto table_of = [&](std::size_t first, std::size_t size) {
    gpu::PartTable table{};
    table.size = static_cast<std::uint32_t>(size);
    for (std::size_t p = 0; p < size; ++p) {
      const DeviceSlot& slot = parts[first + p].slot;
      table.indices[p] = slot.indices;
      table.values[p] = slot.values;
      table.reports[p] = slot.report;
      table.capacities[p] = static_cast<std::uint32_t>(slot.capacity);
      table.bases[p] = parts[first + p].base;
    }
    return table;
  };
  std::uint32_t* total = nullptr;
  std::uint32_t* before = nullptr;  // [groups]
  if (parts.size() > kMaxParts) {
    total = workspace.Get<std::uint32_t>(stream, kUseTotals, 2 + parts.size() / kMaxParts);
    before = total + 1;
    ForGroups(parts.size(), kMaxParts, [&](std::size_t first, std::size_t size) {
      gpu::Launch(
          stream, 1,
          gpu::CountParts{table_of(first, size), before + first / kMaxParts, total, first == 0});
    });
  }
  ForGroups(parts.size(), kMaxParts, [&](std::size_t first, std::size_t size) {
    gpu::MergeParts merge{table_of(first, size),
                          {},
                          out.indices,
                          out.values,
                          before == nullptr ? nullptr : before + first / kMaxParts,
                          total,
                          out.count};
    for (std::size_t p = 0; p < size; ++p) {
      merge.first_block[p + 1] =
          merge.first_block[p] + merge.BlocksFor(parts[first + p].slot.capacity);
    }
    gpu::Launch(stream, merge.first_block[size], merge);
  });
  if (parts.empty()) gpu::FillAsync(stream, out.count, 0, sizeof(*out.count));
}

void CountMissingOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                          DeviceSpan<const float> unsent, const DeviceSlot& slot,
                          DeviceSpan<const std::uint32_t> bounds, std::uint64_t* missing) {
  if (unsent.size == 0 || bounds.size < 2) return;
  const std::size_t tensors = bounds.size - 1;
  auto* const seen = workspace.Get<std::uint32_t>(stream, kUseSeen, tensors);
  gpu::FillAsync(stream, seen, 0, tensors * sizeof(*seen));
  using Kernel = gpu::CountMissingTensors;
  gpu::Launch(stream, (unsent.size + Kernel::kPerBlock - 1) / Kernel::kPerBlock,
              Kernel{unsent.data, static_cast<std::uint32_t>(unsent.size), slot.indices,
                     static_cast<std::uint32_t>(slot.capacity), slot.report, bounds.data,
                     static_cast<std::uint32_t>(tensors), seen, missing});
}

}  // namespace sparfuse

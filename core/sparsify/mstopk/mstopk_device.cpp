#include "core/sparsify/mstopk/mstopk_device.hpp"

#include <algorithm>

#include "core/sparsify/mstopk/mstopk_kernels.hpp"

namespace sparfuse {

void SelectMsTopKOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, std::size_t k, std::int64_t iterations,
                          std::uint64_t seed, const DeviceSlot& slot) {
  auto* const step = context.workspace->Get<gpu::MsTopKStep>(context.stream, kUseStep, 1);
  ScanOptions options = Correcting(input.n, k, nullptr);
  options.own = &step->counts.listed;
  options.own_size = sizeof(step->counts) / sizeof(std::uint32_t);
  DeviceScan scan = PrepareScan(context, input, info, k, slot, options);
  CollectAndMeasureOnDevice<false>(context, scan, gpu::NoteRange{step});

  const gpu::CandidateArrays candidates = gpu::CandidatesOf(scan);
  const auto count = static_cast<std::uint32_t>(k);
  const std::size_t blocks = std::clamp<std::size_t>(scan.capacity / 4096, 1, kMostCounting);
  gpu::Launch(context.stream, blocks,
              gpu::FindBracket{iterations, count, scan.control, candidates, scan.list, step},
              scan.active());
  RecollectOnDevice(context, scan);
  gpu::Launch(context.stream, blocks,
              gpu::CountBracket{RandomStream(seed, info.id, info.step), count,
                                static_cast<std::uint32_t>(CandidateCapacity(input.n, k)),
                                scan.control, candidates, step, slot.report},
              scan.active());
  gpu::Launch(context.stream, scan.plan.spans,
              gpu::SendBracket{count, static_cast<std::uint32_t>(scan.plan.chunks),
                               static_cast<std::uint32_t>(scan.plan.chunks_per_span), scan.control,
                               candidates, step, gpu::TargetOf(input, slot)},
              &step->counts.send);
  Send(context, scan, slot);
}

}  // namespace sparfuse

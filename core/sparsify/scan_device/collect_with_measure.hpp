// Collects as CollectOnDevice, with a measure of one's own (device_scan.hpp, NoMeasure).
//
// Needs SPARFUSE_KERNEL(sparfuse::gpu::Collect<MyMeasure>) in a .cu file.
#pragma once

#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {
namespace gpu {

inline DeviceSource SourceOf(const DeviceInput& input) {
  return {input.gradient, input.residual, input.n, input.pending};
}

inline CandidateArrays CandidatesOf(const DeviceScan& scan) {
  return {scan.indices, scan.values, static_cast<std::uint32_t>(scan.capacity), scan.segments};
}

inline SendTarget TargetOf(const DeviceInput& input, const DeviceSlot& slot) {
  return {slot.indices, slot.values, static_cast<std::uint32_t>(slot.capacity), slot.report,
          input.residual};
}

template <class Measure>
Collect<Measure> CollectKernel(const DeviceScan& scan, const Measure& measure) {
  Collect<Measure> collect;
  collect.source = SourceOf(scan.input);
  collect.shift = static_cast<std::uint32_t>(scan.plan.shift);
  collect.chunks = static_cast<std::uint32_t>(scan.plan.chunks);
  collect.chunks_per_span = static_cast<std::uint32_t>(scan.plan.chunks_per_span);
  collect.control = scan.control;
  collect.candidates = CandidatesOf(scan);
  collect.report = scan.report;
  collect.measure = measure;
  return collect;
}

}  // namespace gpu

// measure: what it writes is [scan.plan.spans], in the caller's part of the workspace.
template <class Measure>
void CollectWithMeasure(const DeviceContext& context, DeviceScan& scan, const Measure& measure) {
  gpu::Launch(context.stream, scan.plan.spans, gpu::CollectKernel(scan, measure), scan.active());
  scan.input.pending = false;
}

}  // namespace sparfuse

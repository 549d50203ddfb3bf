#include "core/sparsify/scan_device/device_scan.hpp"

#include <algorithm>
#include <cmath>

#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/scan_kernels.hpp"
#include "core/sparsify/scan_device/small_tensor_kernels.hpp"

namespace sparfuse {
namespace {

// Lines of the sample, and the rank in it of a key that `wanted` elements of x reach. The key lies
// five standard deviations of a binomial below the expected one.
struct SampleOf {
  std::uint32_t lines;
  std::uint32_t rank;
};
SampleOf PlanSample(std::size_t n, std::size_t wanted) {
  const std::size_t sampled = std::min(gpu::kMostSampled, n / 4) / kLine * kLine;
  if (sampled == 0 || wanted == 0) return {0, 0};
  const double expected =
      static_cast<double>(wanted) * static_cast<double>(sampled) / static_cast<double>(n);
  const double rank = expected + 5 * std::sqrt(expected) + 4;
  const auto lines = static_cast<std::uint32_t>(sampled / kLine);
  if (rank >= static_cast<double>(sampled)) return {lines, 0};
  return {lines, static_cast<std::uint32_t>(rank)};
}

void LaunchSend(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot,
                bool counting) {
  const auto blocks = static_cast<std::uint32_t>(gpu::LookingBlocks(scan.capacity));
  const gpu::SendTarget target = gpu::TargetOf(scan.input, slot);
  const auto k = static_cast<std::uint32_t>(scan.k);
  const std::size_t each =
      (scan.plan.chunks + gpu::Send::kMostSending - 1) / gpu::Send::kMostSending;
  const gpu::Send send{.control = scan.control,
                       .candidates = gpu::CandidatesOf(scan),
                       .list = scan.list,
                       .warm = scan.warm,
                       .k = k,
                       .counting = counting ? blocks : 0,
                       .refining = blocks,
                       .chunks = static_cast<std::uint32_t>(scan.plan.chunks),
                       .chunks_each = static_cast<std::uint32_t>(each),
                       .slot = target};
  const std::size_t sending = (scan.plan.chunks + each - 1) / each;
  gpu::Launch(context.stream, send.counting + send.refining + sending, send, scan.active());

  const std::size_t n = scan.input.n;
  const std::size_t spans = std::min(kExactSpans, scan.plan.chunks);
  gpu::Launch(context.stream, 4 * spans,
              gpu::SendExact{.x = scan.input.x(),
                             .n = n,
                             .control = scan.control,
                             .warm = scan.warm,
                             .k = k,
                             .spans = static_cast<std::uint32_t>(spans),
                             .span_size = (n + spans - 1) / spans,
                             .slot = target},
              &scan.control->exact);
}

}  // namespace

DeviceInput BeginSelectOnDevice(std::string_view sparsifier, const DeviceContext& context,
                                const SelectSource& source, double density, const TensorInfo& info,
                                const DeviceSlot& slot, std::size_t k) {
  CheckSelectOnDevice(sparsifier, context, source, density, info, slot, k);
  const bool feedback = source.residual.size != 0;
  return {source.gradient.data, feedback ? source.residual.data : nullptr, source.gradient.size,
          feedback};
}

void SelectAllOnDevice(const DeviceContext& context, const DeviceInput& input,
                       const DeviceSlot& slot) {
  const std::size_t blocks =
      std::clamp<std::size_t>(input.n / (4 * gpu::SendAll::kThreads), 1, kMostSpans);
  gpu::Launch(context.stream, blocks, gpu::SendAll{input, gpu::TargetOf(input, slot)},
              context.only_if);
}

ScanPlan PlanScan(const DeviceInput& input) {
  // x() is the residual if there is one, since x is written there: the plan aligns to it.
  const auto address = reinterpret_cast<std::uintptr_t>(input.x());
  ScanPlan plan;
  plan.shift = address / sizeof(float) % 4;
  plan.chunks = (input.n + plan.shift + kScanChunk - 1) / kScanChunk;
  plan.chunks_per_span = (plan.chunks + kMostSpans - 1) / kMostSpans;
  plan.spans = (plan.chunks + plan.chunks_per_span - 1) / plan.chunks_per_span;
  return plan;
}

DeviceScan PrepareScan(const DeviceContext& context, const DeviceInput& input,
                       const TensorInfo& info, std::size_t k, const DeviceSlot& slot,
                       const ScanOptions& options) {
  DeviceScan scan;
  scan.input = input;
  scan.plan = PlanScan(input);
  scan.k = k;
  scan.capacity = options.capacity > 0 ? options.capacity : CandidateCapacity(input.n, k);
  const Stream& stream = context.stream;
  DeviceWorkspace& workspace = *context.workspace;
  scan.control = workspace.Get<ScanControl>(stream, kUseControl, 1);
  scan.indices = workspace.Get<std::uint32_t>(stream, kUseCandidateIndices, scan.capacity);
  scan.values = workspace.Get<float>(stream, kUseCandidateValues, scan.capacity);
  scan.segments = workspace.Get<DeviceSegment>(stream, kUseCandidateSegments, scan.plan.chunks);
  scan.list = workspace.Get<std::uint64_t>(stream, kUseList, kListRoom);
  scan.report = slot.report;
  scan.warm = options.warm;

  const SampleOf sample = PlanSample(input.n, options.wanted);
  gpu::Launch(
      stream, 1,
      gpu::Prepare{scan.control, context.only_if, input, RandomStream(0, info.id, info.step),
                   sample.lines, sample.rank, options});
  return scan;
}

void CollectOnDevice(const DeviceContext& context, DeviceScan& scan) {
  CollectWithMeasure(context, scan, NoMeasure{});
}

void RecollectOnDevice(const DeviceContext& context, const DeviceScan& scan) {
  gpu::Launch(context.stream, scan.plan.spans, gpu::CollectKernel(scan, NoMeasure{}),
              &scan.control->recollect);
}

void Send(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot) {
  LaunchSend(context, scan, slot, false);
}

void SendReaching(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot) {
  LaunchSend(context, scan, slot, true);
}

}  // namespace sparfuse

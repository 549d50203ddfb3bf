#include "core/sparsify/device_selection.hpp"

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {
namespace {

// Takes a Buffer or a PinnedBuffer. The stream may still use the freed memory.
template <class AnyBuffer>
std::byte* Grown(AnyBuffer& buffer, const Stream& stream, std::size_t bytes, Device device,
                 std::string_view what) {
  if (buffer.size() < bytes) {
    gpu::Synchronize(stream);
    buffer = {};
    buffer = AnyBuffer(bytes, device, what);
  }
  return buffer.data();
}

}  // namespace

std::byte* DeviceWorkspace::Bytes(const Stream& stream, DeviceWorkspaceUse use, std::size_t bytes) {
  return Grown(buffers_[use], stream, bytes, device_, "the workspace of selections");
}

std::byte* DeviceWorkspace::PinnedBytes(const Stream& stream, PinnedUse use, std::size_t bytes) {
  return Grown(pinned_[use], stream, bytes, device_, "selections on the host");
}

bool IsWanted(const DeviceContext& context) {
  if (context.only_if == nullptr) return true;
  std::uint32_t wanted = 0;
  gpu::CopyAsync(context.stream, &wanted, context.only_if, sizeof(wanted));
  gpu::Synchronize(context.stream);
  return wanted != 0;
}

void CheckSelectOnDevice(std::string_view sparsifier, const DeviceContext& context,
                         const SelectSource& source, double density, const TensorInfo& info,
                         const DeviceSlot& slot, std::size_t k) {
  CheckSelectArguments(sparsifier, source, density, info);
  RequireRoom(sparsifier, info, slot.capacity, k);
  RequireOnDevice(sparsifier, context, source, info);
}

void RequireOnDevice(std::string_view who, const DeviceContext& context, const SelectSource& source,
                     const TensorInfo& info) {
  const Device device = context.stream.device;
  if (device.kind == DeviceKind::kHost || source.gradient.stream.device != device ||
      (source.residual.size > 0 && source.residual.stream.device != device)) {
    SPARFUSE_THROW(kInternal, who, ": ", Describe(info),
                   ": gradient and residual are not on the stream's device");
  }
}

void SelectStaged(const Sparsifier& sparsifier, const DeviceContext& context,
                  const SelectSource& source, double density, const TensorInfo& info,
                  SparsifierState* state, DeviceSlot& slot) {
  CheckSelectArguments(sparsifier.name(), source, density, info);
  if (!IsWanted(context)) return;
  const Stream& stream = context.stream;
  const std::size_t n = source.gradient.size;
  DeviceWorkspace& workspace = *context.workspace;
  const auto gradient = workspace.GetPinned<float>(stream, kPinnedGradient, n);
  const auto residual = workspace.GetPinned<float>(stream, kPinnedResidual, source.residual.size);
  const auto indices = workspace.GetPinned<std::uint32_t>(stream, kPinnedIndices, slot.capacity);
  const auto values = workspace.GetPinned<float>(stream, kPinnedValues, slot.capacity);
  const gpu::QuietScope quiet(stream);
  gpu::CopyAsync(stream, gradient.data(), source.gradient.data, n * sizeof(float));
  gpu::CopyAsync(stream, residual.data(), source.residual.data, residual.size() * sizeof(float));
  SlotReport report;  // of an earlier attempt, if the selection is predicated
  gpu::CopyAsync(stream, &report, slot.report, sizeof(report));
  gpu::Synchronize(stream);

  SelectContext host = *context.host;
  SelectCounters counters;
  host.counters = &counters;
  Slot selected{
      {indices.data(), indices.size(), {}}, {values.data(), values.size(), {}}, slot.capacity, 0};
  sparsifier.Select(host, {{gradient.data(), n, {}}, {residual.data(), residual.size(), {}}},
                    density, info, state, selected);

  report.count = static_cast<std::uint32_t>(selected.count);
  report.overflows += static_cast<std::uint32_t>(counters.overflows);
  report.fallbacks += static_cast<std::uint32_t>(counters.fallbacks);
  report.candidates += counters.candidates;
  gpu::CopyAsync(stream, slot.indices, indices.data(), selected.count * sizeof(std::uint32_t));
  gpu::CopyAsync(stream, slot.values, values.data(), selected.count * sizeof(float));
  gpu::CopyAsync(stream, source.residual.data, residual.data(), residual.size() * sizeof(float));
  gpu::CopyAsync(stream, slot.report, &report, sizeof(report));
  gpu::Synchronize(stream);
}

std::size_t TakeReport(const SlotReport& report, const TensorInfo& info, SelectCounters* counters) {
  if (report.not_finite != 0) {
    SPARFUSE_THROW(kNumeric, Describe(info), ": element ", NotFiniteCode(report.not_finite),
                   " is not finite; expected a finite gradient");
  }
  ++counters->selections;
  counters->overflows += report.overflows;
  counters->fallbacks += report.fallbacks;
  counters->candidates += report.candidates;
  return report.count;
}

}  // namespace sparfuse

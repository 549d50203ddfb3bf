#include "core/sparsify/scan_device/scan_sparsifier.hpp"

#include <algorithm>

#include "core/sparsify/scan_device/collect_kernels.hpp"
#include "core/sparsify/scan_device/small_tensor_kernels.hpp"

namespace sparfuse {

void ScanSparsifier::Select(const SelectContext& context, const SelectSource& source,
                            double density, const TensorInfo& info, SparsifierState* state,
                            Slot& slot) const {
  SelectInput input = BeginSelect(name(), context, source, density, info, slot);
  const std::size_t k = Kept(input.n, density);
  RequireRoom(name(), info, slot.capacity, k);
  if (k == input.n) return SelectAll(context, input, info, slot);
  SelectPart(context, input, info, {density, k}, state, slot);
}

void DeviceScanSparsifier::SelectOnDevice(const DeviceContext& context, const SelectSource& source,
                                          double density, const TensorInfo& info,
                                          SparsifierState* state, DeviceSlot& slot) const {
  // An empty gradient counts as one element until BeginSelectOnDevice refuses it.
  const std::size_t k = Kept(std::max<std::size_t>(source.gradient.size, 1), density);
  const DeviceInput input = BeginSelectOnDevice(name(), context, source, density, info, slot, k);
  if (k == input.n) return SelectAllOnDevice(context, input, slot);
  SelectPartOnDevice(context, input, info, {density, k}, state, slot);
}

std::unique_ptr<SparsifierState> WarmSparsifier::MakeState(std::size_t n) const {
  return std::make_unique<WarmState>(n);
}

std::unique_ptr<SparsifierState> WarmSparsifier::MakeDeviceState(std::size_t /*n*/,
                                                                 Device device) const {
  return std::make_unique<DeviceWarmState>(device);
}

void WarmSparsifier::SelectPartOnDevice(const DeviceContext& context, const DeviceInput& input,
                                        const TensorInfo& info, const Aim& aim,
                                        SparsifierState* state, DeviceSlot& slot) const {
  if (input.n > kOneBlock) {
    DeviceScan scan = PrepareScan(context, input, info, aim.k, slot,
                                  {.wanted = aim.k, .warm = WarmWordsOf(state)});
    CollectOnDevice(context, scan);
    return Send(context, scan, slot);
  }
  const gpu::SendTarget target = gpu::TargetOf(input, slot);
  const auto k = static_cast<std::uint32_t>(aim.k);
  if (input.n <= kOneBlock / 4) {
    gpu::Launch(context.stream, 1, gpu::SendLargestOfSmall<256>{input, k, target}, context.only_if);
  } else {
    gpu::Launch(context.stream, 1, gpu::SendLargestOfSmall<1024>{input, k, target},
                context.only_if);
  }
}

}  // namespace sparfuse

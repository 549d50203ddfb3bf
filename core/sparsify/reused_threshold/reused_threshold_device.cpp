#include "core/sparsify/reused_threshold/reused_threshold_device.hpp"

#include <algorithm>

#include "core/device/launch.hpp"

namespace sparfuse {
namespace {

// residual: where x lies after the pass, or null; then `inner` has cleared what it has sent.
void EstimateAndLearn(const Sparsifier& inner, const DeviceContext& context,
                      const SelectSource& source, double density, const TensorInfo& info,
                      ReusedDeviceState& state, DeviceSlot& slot, float* residual) {
  inner.SelectOnDevice(context, source, density, info, state.inner.get(), slot);
  state.density = density;
  const std::size_t count = inner.Count(source.gradient.size, info.shape, density);
  const std::size_t blocks =
      std::clamp<std::size_t>(slot.capacity / 4096, 1, gpu::LearnReused::kMostBlocks);
  gpu::Launch(
      context.stream, blocks,
      gpu::LearnReused{state.words.data(), count, slot.indices, slot.values, slot.report, residual},
      context.only_if);
}

}  // namespace

void EstimateReusedOnDevice(const Sparsifier& inner, const DeviceContext& context,
                            const SelectSource& source, double density, const TensorInfo& info,
                            ReusedDeviceState& state, DeviceSlot& slot) {
  EstimateAndLearn(inner, context, source, density, info, state, slot, nullptr);
}

void SelectReusedOnDevice(const Sparsifier& inner, const DeviceContext& context,
                          const SelectSource& source, double density, const TensorInfo& info,
                          ReusedDeviceState& state, DeviceSlot& slot) {
  const std::size_t count = inner.Count(source.gradient.size, info.shape, density);
  const DeviceInput input =
      BeginSelectOnDevice(inner.name(), context, source, density, info, slot, count);
  ReusedWords* const words = state.words.data();
  ScanOptions options;
  options.bound = &words->key;
  options.own = &words->again;
  options.own_size = 1;
  options.capacity = std::min(input.n, slot.capacity);
  DeviceScan scan = PrepareScan(context, input, info, count, slot, options);
  CollectOnDevice(context, scan);
  gpu::Launch(context.stream, 1,
              gpu::ReuseGuard{scan.control, words, static_cast<std::uint32_t>(scan.capacity),
                              static_cast<std::uint32_t>(slot.capacity), slot.report},
              scan.active());
  Send(context, scan, slot);

  DeviceContext again = context;
  again.only_if = &words->again;
  if (input.residual == nullptr) {
    EstimateAndLearn(inner, again, source, density, info, state, slot, nullptr);
    return;
  }
  // The pass has left x in the residual: `inner` selects from that, and what it sent is cleared.
  const SelectSource x{{input.residual, input.n, source.residual.stream}, {}};
  EstimateAndLearn(inner, again, x, density, info, state, slot, input.residual);
}

}  // namespace sparfuse

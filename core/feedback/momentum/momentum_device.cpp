#include "core/feedback/momentum/momentum_device.hpp"

#include <cassert>

#include "core/device/launch.hpp"
#include "core/feedback/momentum/momentum_kernels.hpp"

namespace sparfuse {

DeviceSpan<const float> AdvanceVelocityOnDevice(const Stream& stream,
                                                const MomentumOptions& options,
                                                DeviceSpan<const float> gradient,
                                                const float* factor, DeviceSpan<float> velocity,
                                                DeviceSpan<float> growth) {
  assert(gradient.size == velocity.size);
  const std::size_t n = gradient.size;
  const auto momentum = static_cast<float>(options.momentum);
  if (!options.nesterov) {
    const gpu::Quads quads = gpu::QuadsOf(n, gradient.data, velocity.data);
    gpu::Launch(stream, gpu::ElementwiseBlocks(quads),
                gpu::AdvanceVelocities<false>{quads, gradient.data, factor, momentum, velocity.data,
                                              nullptr});
    return {velocity.data, n, stream};
  }
  assert(growth.size >= n);
  const gpu::Quads quads = gpu::QuadsOf(n, gradient.data, velocity.data, growth.data);
  gpu::Launch(stream, gpu::ElementwiseBlocks(quads),
              gpu::AdvanceVelocities<true>{quads, gradient.data, factor, momentum, velocity.data,
                                           growth.data});
  return {growth.data, n, stream};
}

void MaskVelocityOnDevice(const Stream& stream, const MomentumOptions& options,
                          const DeviceSlot& sent, DeviceSpan<float> velocity) {
  if (!options.masking) return;
  using Kernel = gpu::MaskVelocities;
  gpu::Launch(
      stream, Kernel::BlocksFor(sent.capacity),
      Kernel{sent.indices, sent.report, static_cast<std::uint32_t>(sent.capacity), velocity.data});
}

}  // namespace sparfuse

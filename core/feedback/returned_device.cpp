#include "core/feedback/returned_device.hpp"

#include <cassert>

#include "core/device/launch.hpp"
#include "core/feedback/returned_kernels.hpp"

namespace sparfuse {

void AddReturnedOnDevice(const Stream& stream, const DevicePayload& returned, Range part,
                         DeviceSpan<float> residual, std::uint32_t* taken, std::uint64_t* fault) {
  assert(residual.size == 0 || residual.size == part.size());
  using Kernel = gpu::AddReturnedElements;
  Kernel kernel{{},    part.begin, part.end, residual.size == 0 ? nullptr : residual.data,
                taken, fault};
  kernel.payload.size = 1;
  kernel.payload.indices[0] = returned.indices;
  kernel.payload.values[0] = returned.values;
  kernel.payload.counts[0] = static_cast<std::uint32_t>(returned.count);
  kernel.payload.count_words[0] = returned.count_word;
  gpu::Launch(stream, (returned.count + Kernel::kPerBlock - 1) / Kernel::kPerBlock, kernel);
}

}  // namespace sparfuse

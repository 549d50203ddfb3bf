// Declares MSTopK's selection on a device.
#pragma once

#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// x has more than k elements. Takes its bound from a sample in every step: one that is too high
// would change what is selected, not only the time it takes.
//
// Cost: one pass over x, a second one where the bracket reaches below the candidates.
void SelectMsTopKOnDevice(const DeviceContext& context, const DeviceInput& input,
                          const TensorInfo& info, std::size_t k, std::int64_t iterations,
                          std::uint64_t seed, const DeviceSlot& slot);

}  // namespace sparfuse

// Declares DGC's selection on a device.
#pragma once

#include "core/sparsify/dgc/dgc_rule.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// Selects what Dgc::Select does, bit for bit. Precondition: fewer than n elements are wanted.
//   warm   or null; decides the time taken, never the result.
// Launches: one for kOneBlock elements or fewer, else seven, of which three do nothing as a rule.
void SelectDgcOnDevice(const DeviceContext& context, const DeviceInput& input, double density,
                       const TensorInfo& info, const DgcOptions& options, std::uint64_t seed,
                       WarmWords* warm, const DeviceSlot& slot);

}  // namespace sparfuse

// Declares the threshold phase of adtopk-threshold on a device.
#pragma once

#include "core/sparsify/adtopk/kept_threshold_kernels.hpp"
#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// Decides, on the device, what the phase is: kept->all_dimension, or kept->estimates and how.
void BeginPhaseOnDevice(const DeviceContext& context, KeptThreshold* kept, bool warming,
                        bool ending);

// Where kept->estimates: sends what reaches the threshold, if that is k/2 to 2k elements and the
// phase is not an exact one; else the k largest, from which it learns the threshold anew.
void SendByThreshold(const DeviceContext& context, const DeviceInput& input, const TensorInfo& info,
                     std::size_t k, KeptThreshold* kept, bool warming, DeviceSlot& slot);

}  // namespace sparfuse

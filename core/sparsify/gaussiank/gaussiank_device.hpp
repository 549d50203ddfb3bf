// Declares GaussianK's selection on a device.
#pragma once

#include "core/sparsify/scan_device/device_scan.hpp"

namespace sparfuse {

// x has more than k elements; z: TwoSidedNormalQuantile of the density.
//
// Cost: one pass over x.
void SelectGaussianOnDevice(const DeviceContext& context, const DeviceInput& input,
                            const TensorInfo& info, std::size_t k, double z, WarmWords* warm,
                            const DeviceSlot& slot);

// As in the paper. Cost: three passes over x.
void SelectGaussianPaperOnDevice(const DeviceContext& context, const DeviceInput& input,
                                 const TensorInfo& info, std::size_t k, double z,
                                 const DeviceSlot& slot);

}  // namespace sparfuse

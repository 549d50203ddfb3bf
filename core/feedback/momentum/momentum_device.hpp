// Corrects momentum (momentum.hpp) on a device, with the host's bits.
//
// Everything here returns before it is done, runs in the order of `stream`, waits for nothing and
// allocates nothing once a step has run with the largest sizes.
#pragma once

#include <span>

#include "core/device/device.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// AdvanceVelocity; returns what v grows by: velocity, or with nesterov `growth`.
//
//   factor   a word of the device that the gradient is multiplied with, or null: 1.
//   growth   [n] with nesterov, else unused.
DeviceSpan<const float> AdvanceVelocityOnDevice(const Stream& stream,
                                                const MomentumOptions& options,
                                                DeviceSpan<const float> gradient,
                                                const float* factor, DeviceSpan<float> velocity,
                                                DeviceSpan<float> growth);

// MaskVelocity, of what a slot's report counts.
void MaskVelocityOnDevice(const Stream& stream, const MomentumOptions& options,
                          const DeviceSlot& sent, DeviceSpan<float> velocity);

}  // namespace sparfuse

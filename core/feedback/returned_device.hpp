// Adds what a collective gives back to residuals, as AddReturned (returned.hpp), on a device.
#pragma once

#include <cstdint>

#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {

// Adds to a residual the returned elements that lie in a part of what was exchanged, in the order
// of `stream`, and their number to *taken.
//
//   residual  [part.size()], or empty: what came back of the part is lost.
//   fault     as AccumulateSparseOnDevice's: indices that do not increase. Looked at in the whole
//             payload.
void AddReturnedOnDevice(const Stream& stream, const DevicePayload& returned, Range part,
                         DeviceSpan<float> residual, std::uint32_t* taken, std::uint64_t* fault);

}  // namespace sparfuse

// Adds the returned elements of an exchange to a residual, on the host or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/collective/collective.hpp"
#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {

// Adds to a residual the returned elements (ExchangeBuffers::returned) that lie in a part of the
// exchanged range: residual[index - part.begin] += value for part.begin <= index < part.end. No
// value is lost, so that over all ranks
//   sum of residuals + P * applied = sum of inputs.
//
//   returned  indices relative to the exchanged range, strictly increasing.
//   part      relative to the same range.
//   residual  [part.size()], host: the residual, in a ResidualStore, that the part was selected
//             with. Empty if the part has no error feedback: its returned elements are then lost.
//
// Returns the number of elements in the part. Over the parts of an exchange these numbers sum to
// the number of returned elements, or the collective is wrong. Throws Error{kComm} for indices that
// do not increase.
//
// Under momentum correction the residual is v. The velocity u stays unchanged: zero where masking
// cleared it. The returned elements hold the steps that were to be sent; in u they would count
// twice.
std::size_t AddReturned(const SparsePayload& returned, Range part, std::span<float> residual);

// Adds to a residual the returned elements that lie in a part of the exchanged range, in the order
// of `stream`, and their number to *taken.
//
//   residual  [part.size()], or empty: the returned elements of the part are lost.
//   fault     as AccumulateSparseOnDevice's: indices that do not increase. The whole payload is
//             checked.
void AddReturnedOnDevice(const Stream& stream, const DevicePayload& returned, Range part,
                         DeviceSpan<float> residual, std::uint32_t* taken, std::uint64_t* fault);

}  // namespace sparfuse

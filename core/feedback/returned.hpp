// Adds to a residual what others return of an exchange, on the host or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/collective/collective.hpp"
#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {

// Adds to a residual the returned elements (ExchangeBuffers::returned) that lie in a part of what
// was exchanged: residual[index - part.begin] += value for part.begin <= index < part.end. Nothing
// is lost, so that over all ranks
//   sum of residuals + P * applied = sum of inputs.
//
//   returned  indices relative to the range that was exchanged, strictly increasing.
//   part      in the same terms.
//   residual  [part.size()], host: of a ResidualStore, the one that the part was selected with. Or
//             empty, where the part has no error feedback: then what came back of it is lost.
//
// Returns how many elements lie in the part: over the parts of an exchange they sum up to all of
// them, or the collective is wrong. Throws Error{kComm} for indices that do not increase.
//
// Under momentum correction the residual is v. The velocity u stays as it is: zero where masking
// cleared it. The steps that were to be sent are in what comes back; in u they would count twice.
std::size_t AddReturned(const SparsePayload& returned, Range part, std::span<float> residual);

// Adds to a residual the returned elements that lie in a part of what was exchanged, in the order
// of `stream`, and their number to *taken.
//
//   residual  [part.size()], or empty: what came back of the part is lost.
//   fault     as AccumulateSparseOnDevice's: indices that do not increase. Looked at in the whole
//             payload.
void AddReturnedOnDevice(const Stream& stream, const DevicePayload& returned, Range part,
                         DeviceSpan<float> residual, std::uint32_t* taken, std::uint64_t* fault);

}  // namespace sparfuse

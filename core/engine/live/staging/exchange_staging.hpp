// Moves exchanges between the memory of lanes and the memory of a communicator. On the host they
// are the same. A device's data goes through pinned memory, or stays in place if the communicator
// reads device memory.
#pragma once

#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/live/live_state.hpp"
#include "core/engine/scheduler.hpp"
#include "core/transport/progress.hpp"
#include "core/transport/task.hpp"

namespace sparfuse {

// Used by the communication thread.
class ExchangeStaging {
 public:
  virtual ~ExchangeStaging() = default;

  // Gathers this rank's payload into state.buffers, on which a collective works. Sets
  // state.op->payload_bytes and the sizes in state.payload. Precondition: the selections, or the
  // packed ranges, are done.
  virtual Task Gather(Communicator& communicator, ExchangeState& state) = 0;
  // Puts the collective's result where Apply reads it, and returned elements into the residuals.
  virtual Task Deliver(Communicator& communicator, ExchangeState& state) = 0;
  // Call between steps, from any thread. After it returns, no callback uses this step's events.
  virtual void EndStep() {}
};

// The setup of both stagings.
struct StagingSetup {
  PayloadCoding coding;
  std::size_t workers = 1;
  DeviceSpan<float> flat;    // packed gradients; after a dense exchange their sum
  const FlatPlaces& places;  // in `flat`

  float* FlatOf(Range range, std::size_t array = 0) const {
    return flat.data + places.Of(range, array);
  }
};

std::unique_ptr<ExchangeStaging> MakeHostStaging(const StagingSetup& setup);

// The staging wakes `loop` when a copy to the host has ended, and makes streams for its copies. No
// exchange may be under way when it is destroyed.
std::unique_ptr<ExchangeStaging> MakeDeviceStaging(const StagingSetup& setup, ProgressLoop& loop,
                                                   gpu::EventPool& events);

// The place of a selection's first element in the range of an exchange.
inline std::uint32_t BaseOf(const Selection& part, const Op& exchange) {
  return static_cast<std::uint32_t>(part.range.begin - exchange.range().begin);
}

// Sums over the parts: capacities, counts and ranges of the payload, sizes of state.buffers.
void MeasurePayload(const StagingSetup& setup, ExchangeState& state);
// Concatenates the forwarded payloads, unchanged: all indices to `indices`, all values to `values`.
// Returns the number of elements. All memory is on the host. range: of the exchange.
std::size_t CopyForwarded(Range range, const Payload& payload, std::uint32_t* indices,
                          float* values);
// Bytes of the whole tensors with which the payload of one member of the channel begins.
std::size_t WholeBytesOf(const Payload& payload, std::size_t member);
// Throws Error{kComm} when a payload is shorter than the whole tensors that it begins with.
void RequireWhole(const ExchangeState& state);
// Throws Error{kInternal} unless the parts have `taken` all returned elements.
void RequireAllTaken(const ExchangeState& state, std::size_t taken);

// Decodes a rank's selections, which are coded one by one, to indices of the exchange's range.
// Returns their number. decode(selection, bytes, indices, values) decodes the first of them, with
// indices of its own range. Throws Error{kComm} if bytes are left over.
template <class Decode>
std::size_t DecodeSelections(const ExchangeState& state, std::span<const std::byte> payload,
                             std::size_t rank, std::span<std::uint32_t> indices,
                             std::span<float> values, const Decode& decode) {
  std::size_t count = 0;
  for (const Selection* part : state.payload.parts) {
    if (part->whole) continue;
    const auto to = indices.subspan(count);
    const auto decoded = decode(*part, payload, to, values.subspan(count));
    const std::size_t came = decoded.payload.indices.size();
    for (std::uint32_t& index : to.first(came)) index += BaseOf(*part, *state.op);
    count += came;
    payload = payload.subspan(decoded.bytes);
  }
  if (!payload.empty()) {
    SPARFUSE_THROW(kComm, "malformed sparse payload: ", payload.size(),
                   " bytes after the selections of rank ", rank);
  }
  return count;
}

}  // namespace sparfuse

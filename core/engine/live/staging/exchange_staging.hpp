// Moves exchanges between the memory that lanes use and the memory that a communicator moves: on
// the host they are the same; a device's goes through pinned memory, or stays where it is when the
// communicator reads it there.
#pragma once

#include <memory>

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

  // Makes of what this rank sends what a collective works on, state.buffers; sets
  // state.op->payload_bytes and what `state` says of a payload. The selections, or the packed
  // ranges, are done.
  virtual Task Gather(Communicator& communicator, ExchangeState& state) = 0;
  // Puts what the collective left where Apply reads it, and what it gave back into the residuals.
  virtual Task Deliver(Communicator& communicator, ExchangeState& state) = 0;
  // Call between steps, from any thread. After it returns, no callback uses this step's events.
  virtual void EndStep() {}
};

// What both know of payloads.
struct StagingSetup {
  PayloadCoding coding;
  std::size_t workers = 1;
  DeviceSpan<float> flat;  // packed gradients; after a dense exchange their sum
};

std::unique_ptr<ExchangeStaging> MakeHostStaging(const StagingSetup& setup);

// `loop` is woken when a copy to the host has ended. Makes streams for its copies. When it is
// destroyed no exchange is under way.
std::unique_ptr<ExchangeStaging> MakeDeviceStaging(const StagingSetup& setup, ProgressLoop& loop,
                                                   gpu::EventPool& events);

// Sums the parts up: capacities, counts and ranges of the payload, sizes of state.buffers.
void MeasurePayload(const StagingSetup& setup, ExchangeState& state);
// Lays what is sent on as it came side by side, the first indices of all first, and returns how
// many elements that are. It lies in host memory. range: of the exchange.
std::size_t CopyForwarded(Range range, const Payload& payload, std::uint32_t* indices,
                          float* values);
// Of what travels whole in the payload of one member of the channel, which begins with it.
std::size_t WholeBytesOf(const Payload& payload, std::size_t member);
// Throws Error{kComm} when a payload is shorter than the whole tensors that it begins with.
void RequireWhole(const ExchangeState& state);
// Throws Error{kInternal} unless all of what came back was `taken` by one of the parts.
void RequireAllTaken(const ExchangeState& state, std::size_t taken);

}  // namespace sparfuse

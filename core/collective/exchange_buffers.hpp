// Holds what an exchange works on: what a rank sends, room for what comes, and what it comes to.
// Lets a collective compute beside the communication thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/collective/rounds.hpp"
#include "core/device/device.hpp"
#include "core/payload/payload.hpp"
#include "core/transport/communicator.hpp"
#include "core/transport/task.hpp"

namespace sparfuse {

// What a collective remembers of one range from step to step: a threshold, boundaries of regions.
class CollectiveState {
 public:
  virtual ~CollectiveState() = default;
};

// Does heavy local work beside the communication thread, which serves all exchanges of a rank,
// probes and deadlines.
class Jobs {
 public:
  virtual ~Jobs() = default;
  // Complete when `work` has run; Test rethrows what it threw. What `work` uses must live until
  // then, or until the request is destroyed, which waits for it.
  virtual std::unique_ptr<Request> Start(std::function<void()> work) = 0;
};

// Which members are used follows from the collective's payload and traits.
struct ExchangeBuffers {
  ExchangeShape shape;
  CollectiveState* state = nullptr;  // of Collective::MakeState for this range; may be null
  Jobs* jobs = nullptr;              // null: work is done where it comes up

  std::span<float> dense;  // [n], in place: own values in, sum over ranks out
  // Of dense collectives that round: [n] what rounding has taken before, which is sent now, in;
  // what it takes, out. Or empty: that is lost.
  std::span<float> rounded;
  std::span<const std::byte> own;  // this rank's sparse payload
  // Where memory is shared, others read it as long as they hold this, and `gathered` has no room;
  // or null.
  std::shared_ptr<const void> own_owner;
  // Of collectives that select (CollectiveTraits::selects): [shape.elements] what this rank has
  // accumulated, of which it sends what it chooses. It is this rank's residual: what remains of it
  // is left here, or said by `returned`.
  std::span<float> accumulated;
  // Where parts of the range have an owner each: where they begin, ascending, and where the last
  // one ends.
  std::vector<std::uint32_t> part_begins;
  // Of parts that are encoded whole, their bytes, one behind the other in `own`. Or empty: parts
  // have indices.
  std::vector<std::size_t> part_bytes;
  std::span<std::byte> gathered;   // room for size() * capacity_bytes
  std::size_t capacity_bytes = 0;  // most that one rank may send; equal on all ranks
  // Payloads and the capacity are multiples of this; 1 where they are coded (payload_coding.hpp).
  std::size_t element_bytes = kSparseElementBytes;

  // --- out ---

  // What is summed, in this order, by Apply: the ranks' payloads in rank order, own included; of
  // collectives that sum, uncoded payloads of sums, each with increasing indices. Equal on all
  // ranks. They lie in `own`, in `gathered`, in what the collective keeps in `kept`, or where
  // others have them, which `held` holds.
  std::vector<std::span<const std::byte>> payloads;
  std::vector<SharedBytes> held;
  // Or a dense sum, which then counts instead of payloads: [shape.elements], or empty.
  std::span<const float> sums;
  Buffer<std::byte> kept;  // used again by the next exchange of the same place in a step
  // Of collectives that drop or select: what is added to this rank's residual, an uncoded sparse
  // payload. Sum of what is applied + sum over ranks of `returned` = sum over ranks of `own`: of
  // what was accumulated and has been sent it says so much less. Empty on entry.
  std::vector<std::byte> returned;
  // The sizes that only this run knew (ExchangeSizes::seen). Empty on entry.
  std::vector<std::uint64_t> seen;
  // Of collectives that share sums out among ranks: elements, own ones included, that this rank
  // has read for the sums that are its to make. 0 on entry.
  std::uint64_t served = 0;

  // The first `bytes` of `kept`, which is made larger where it has fewer: what it held is then
  // gone.
  std::span<std::byte> Keep(std::size_t bytes) {
    if (kept.size() < bytes) kept = Buffer<std::byte>(bytes);
    return kept.host().first(bytes);
  }
};

// co_await OffThread(buffers, work): done by buffers.jobs, or here where there are none. Rethrows.
inline Task OffThread(ExchangeBuffers& buffers, std::function<void()> work) {
  if (buffers.jobs == nullptr) {
    work();
    co_return;
  }
  co_await Complete(buffers.jobs->Start(std::move(work)));
}

}  // namespace sparfuse

// Holds the buffers of an exchange: a rank's payload, room for received payloads, and the result.
// Lets a collective compute in parallel with the communication thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/state_numbers.hpp"
#include "core/collective/rounds.hpp"
#include "core/device/device.hpp"
#include "core/payload/payload.hpp"
#include "core/transport/communicator.hpp"
#include "core/transport/task.hpp"

namespace sparfuse {

// The state of a collective for one range from step to step: a threshold, boundaries of regions.
class CollectiveState {
 public:
  using Arrays = std::map<std::string_view, std::span<float>>;  // each [elements of the range]

  virtual ~CollectiveState() = default;
  // The arrays without which a run cannot go on from a checkpoint, by name; most states have none.
  // Valid between steps.
  virtual Arrays Kept() { return {}; }
  // Whether Kept() has a meaning yet. A state without it begins anew, as one just made does.
  virtual bool begun() const { return false; }
  // Continues from arrays that were written over Kept()'s.
  virtual void GoOn() {}
  // Reads or writes the other state on which later runs depend. Nothing by default.
  virtual void Exchange(StateNumbers& /*numbers*/) {}
};

// Runs heavy local work in parallel with the communication thread. That thread serves all exchanges
// of a rank, probes and deadlines.
class Jobs {
 public:
  virtual ~Jobs() = default;
  // The request is complete when `work` has run; Test rethrows an exception of `work`. Everything
  // that `work` uses must live until then, or until the request is destroyed. Destroying the
  // request waits for `work`.
  virtual std::unique_ptr<Request> Start(std::function<void()> work) = 0;
};

// The collective's payload and traits determine which members are used.
struct ExchangeBuffers {
  ExchangeShape shape;
  CollectiveState* state = nullptr;  // from Collective::MakeState for this range; may be null
  Jobs* jobs = nullptr;              // null: the communication thread does the work

  std::span<float> dense;  // [n], in place: own values in, sum over ranks out
  // For dense collectives that round: [n]. In: earlier rounding errors, which are sent now. Out:
  // the new rounding errors. Empty: rounding errors are lost.
  std::span<float> rounded;
  std::span<const std::byte> own;  // this rank's sparse payload
  // If ranks share memory, others read `own` as long as they hold this owner, and `gathered` has no
  // room. Otherwise null.
  std::shared_ptr<const void> own_owner;
  // For collectives that select (CollectiveTraits::selects): [shape.elements] the accumulated
  // gradient of this rank, from which the collective selects the payload. It is this rank's
  // residual: the unsent rest stays here, or `returned` describes it.
  std::span<float> accumulated;
  // If each part of the range has an owner: the begins of the parts, ascending, and the end of the
  // last part.
  std::vector<std::uint32_t> part_begins;
  // The bytes of each part that is encoded whole; these parts lie one after another in `own`.
  // Empty: parts have indices.
  std::vector<std::size_t> part_bytes;
  std::span<std::byte> gathered;   // room for size() * capacity_bytes
  std::size_t capacity_bytes = 0;  // the most that a rank may send; equal on all ranks
  // Payloads and the capacity are multiples of this; 1 if they are coded (payload_coding.hpp).
  std::size_t element_bytes = kSparseElementBytes;

  // --- out ---

  // The payloads that Apply sums in this order: the ranks' payloads in rank order, own included. A
  // collective that sums yields uncoded payloads of sums instead, each with increasing indices.
  // Equal on all ranks. They lie in `own`, in `gathered`, in `kept`, or in other ranks' memory,
  // which `held` keeps alive.
  std::vector<std::span<const std::byte>> payloads;
  std::vector<SharedBytes> held;
  // A dense sum that replaces the payloads: [shape.elements], or empty.
  std::span<const float> sums;
  Buffer<std::byte> kept;  // reused by the next exchange at the same place in a step
  // For collectives that drop or select: an uncoded sparse payload to be added to this rank's
  // residual. Sum of applied values + sum over ranks of `returned` = sum over ranks of `own`. After
  // a selection from `accumulated`, it holds the sent values with negative sign. Empty on entry.
  std::vector<std::byte> returned;
  // The sizes that only this run knew (ExchangeSizes::seen). Empty on entry.
  std::vector<std::uint64_t> seen;
  // For collectives that distribute sums among ranks: the elements, own ones included, that this
  // rank has read to compute its sums. 0 on entry.
  std::uint64_t served = 0;

  // Call before a run: empties what the last run has put out.
  void ClearResults() {
    payloads.clear();
    sums = {};
    returned.clear();
    seen.clear();
    served = 0;
  }
  // Returns the first `bytes` of `kept`. If `kept` has fewer, it is reallocated and its content is
  // lost.
  std::span<std::byte> Keep(std::size_t bytes) {
    if (kept.size() < bytes) kept = Buffer<std::byte>(bytes);
    return kept.host().first(bytes);
  }
};

// co_await OffThread(buffers, work): runs `work` in buffers.jobs, or here if there are none.
// Rethrows.
inline Task OffThread(ExchangeBuffers& buffers, std::function<void()> work) {
  if (buffers.jobs == nullptr) {
    work();
    co_return;
  }
  co_await Complete(buffers.jobs->Start(std::move(work)));
}

}  // namespace sparfuse

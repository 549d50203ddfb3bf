// Declares Communicator, which moves messages between the ranks of a group.
//
// Its operations do not block: callers start a request, then test it. Collectives are coroutines
// over it (core/collective). A rank's one communication thread (ProgressLoop) drives them and owns
// deadlines. One thread at a time uses a Communicator, so all MPI calls happen on one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/device/device.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// A started send or receive. Buffers must live until the request is complete or destroyed.
// Destroying an incomplete request abandons its message: only clean-up after an error may follow.
class Request {
 public:
  virtual ~Request() = default;
  // True once the operation is complete, and from then on. Throws Error{kComm} naming the peer if
  // the peer is lost.
  virtual bool Test() = 0;
  // Bytes that arrived (receive) or left (send); valid once complete.
  virtual std::size_t bytes() const noexcept { return 0; }
  // Rank in the world that this request waits for, also in a split communicator, or -1 (a native
  // collective).
  virtual int peer() const noexcept { return -1; }
};

// Memory that ranks of one process share for reading. It stays unchanged while any rank holds
// `owner`.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

struct RingNeighbours {
  int previous = 0;
  int next = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // "threads" | "mpi" | "tcp" | "shaped" | "nccl"
  virtual std::string_view backend() const noexcept = 0;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  // The topology of this group's ranks.
  virtual const Topology& topology() const noexcept = 0;

  // Message memory is read and written in the order of this stream. Its device holds that memory.
  virtual Stream stream() const noexcept { return {}; }
  // The communicator of the same ranks for messages in host memory: this one unless stream()
  // belongs to another device.
  virtual Communicator& host() noexcept { return *this; }

  // Messages between two ranks with equal tag do not overtake one another. tag in [0, 2^15).
  // A message may have zero bytes.
  virtual std::unique_ptr<Request> Isend(int destination, int tag,
                                         std::span<const std::byte> data) = 0;
  // `buffer` may be larger than the message. Test throws Error{kComm} for a message larger than
  // `buffer`.
  virtual std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) = 0;

  // Whether ranks are threads of one process, which can send memory without copying it.
  virtual bool shares_memory() const noexcept { return false; }
  // As Isend and Irecv, each paired with the other, if memory is shared. `into` then refers to the
  // sender's memory; it must live until the request is complete or destroyed.
  virtual std::unique_ptr<Request> IsendShared(int /*destination*/, int /*tag*/,
                                               SharedBytes /*data*/) {
    return nullptr;
  }
  virtual std::unique_ptr<Request> IrecvShared(int /*source*/, int /*tag*/, SharedBytes& /*into*/) {
    return nullptr;
  }

  // Starts the backend's own all-reduce, which sums in place. Null if the backend has none, or for
  // a wrapper: `shaped` cannot delay messages that it cannot see. Not counted in traffic().
  virtual std::unique_ptr<Request> NativeAllReduceSum(std::span<float> /*buffer*/) {
    return nullptr;
  }
  virtual bool has_native_all_reduce() const noexcept { return false; }

  // Starts the backend's own all-gather of payloads of unequal bytes, or returns null if the
  // backend has none. Sets by_rank[r] to rank r's payload: `own`, or a part of `gathered`, which
  // has room for size() * capacity_bytes. No payload may exceed capacity_bytes, which is equal on
  // all ranks. `by_rank` too must live until the request is complete. Not counted in traffic().
  virtual std::unique_ptr<Request> NativeAllGather(
      std::span<const std::byte> /*own*/, std::span<std::byte> /*gathered*/,
      std::size_t /*capacity_bytes*/, std::vector<std::span<const std::byte>>& /*by_rank*/) {
    return nullptr;
  }
  virtual bool has_native_all_gather() const noexcept { return false; }

  // Starts one step of a ring, as NCCL's own collectives do. Sends `out` to rank `ring.next` and
  // receives `in`, of equal size, from rank `ring.previous`, each as `messages` messages of equal
  // size. Null if Isend and Irecv can do such a step. Every rank of a ring posts the step at the
  // same place among its collectives. Not counted in traffic().
  virtual std::unique_ptr<Request> NativeRingStep(RingNeighbours /*ring*/,
                                                  std::span<const std::byte> /*out*/,
                                                  std::span<std::byte> /*in*/, int /*messages*/) {
    return nullptr;
  }

  // Blocks the caller until something may have changed, or for `limit`. Never spins for long.
  // Returns at once when Wake was called since the last call.
  virtual void Idle(std::chrono::nanoseconds limit) = 0;
  // Ends Idle. Any thread may call this member, and only this one.
  virtual void Wake() noexcept = 0;

  // A communicator over the ranks that pass the same color, ordered by key then rank. Collective
  // over this group; blocks up to `deadline`. Call it before training, never during.
  virtual std::unique_ptr<Communicator> Split(int color, int key,
                                              std::chrono::milliseconds deadline) = 0;
  // Split in two parts, for ranks that share a thread and may not block: once the request is
  // complete, EndSplit returns the communicator. Null if callers must use Split.
  virtual std::unique_ptr<Request> StartSplit(int /*color*/, int /*key*/) { return nullptr; }
  virtual std::unique_ptr<Communicator> EndSplit() { return nullptr; }

  // Point-to-point traffic of this communicator, by link class.
  virtual const TrafficByLink& traffic() const noexcept = 0;
};

}  // namespace sparfuse

// Declares Communicator, which moves messages between the ranks of a group.
//
// Its whole surface is non-blocking: a request is started, then tested. Collectives are coroutines
// over it (core/collective), driven by the one communication thread of a rank (ProgressLoop), which
// also owns deadlines. One Communicator is used by one thread at a time; MPI calls therefore all
// happen on one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// A started send or receive. Buffers must live until it is complete or destroyed. Destroying an
// incomplete request gives the message up: after that only an error's clean-up may follow.
class Request {
 public:
  virtual ~Request() = default;
  // True once the operation is complete, and from then on. Throws Error{kComm} naming the peer when
  // it is lost.
  virtual bool Test() = 0;
  // Bytes that arrived (receive) or left (send); valid once complete.
  virtual std::size_t bytes() const noexcept = 0;
  // Rank in the world that this request waits for, also in a split communicator, or -1 (a native
  // collective).
  virtual int peer() const noexcept = 0;
};

// Memory that ranks of one process read together; it stays as it is while somebody holds `owner`.
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
  // Of this group's ranks.
  virtual const Topology& topology() const noexcept = 0;

  // Where memory of messages lies, and the stream in whose order it is read and written.
  virtual Stream stream() const noexcept { return {}; }
  // The communicator of the same ranks for messages in host memory: this one unless stream() is of
  // another device.
  virtual Communicator& host() noexcept { return *this; }

  // Messages between two ranks with equal tag do not overtake one another. tag in [0, 2^15).
  // Zero bytes is a message.
  virtual std::unique_ptr<Request> Isend(int destination, int tag,
                                         std::span<const std::byte> data) = 0;
  // `buffer` may be larger than the message. A larger message is Error{kComm} from Test.
  virtual std::unique_ptr<Request> Irecv(int source, int tag, std::span<std::byte> buffer) = 0;

  // Ranks are threads of one process, which can send memory without copying it.
  virtual bool shares_memory() const noexcept { return false; }
  // As Isend and Irecv, the one with the other, where memory is shared: what comes lies where the
  // sender has it. `into` must live until the request is complete or destroyed.
  virtual std::unique_ptr<Request> IsendShared(int /*destination*/, int /*tag*/,
                                               SharedBytes /*data*/) {
    return nullptr;
  }
  virtual std::unique_ptr<Request> IrecvShared(int /*source*/, int /*tag*/, SharedBytes& /*into*/) {
    return nullptr;
  }

  // The backend's own all-reduce, summing in place, or null where it has none or where it would
  // defeat the wrapper (shaped cannot delay what it cannot see). Not counted in traffic().
  virtual std::unique_ptr<Request> NativeAllReduceSum(std::span<float> buffer) = 0;
  virtual bool has_native_all_reduce() const noexcept = 0;

  // The backend's own all-gather of payloads of unequal bytes, or null where it has none. Sets
  // by_rank[r] to rank r's payload: `own`, or a part of `gathered`, which has room for size() *
  // capacity_bytes. Nobody may give more than capacity_bytes, equal on all ranks. `by_rank` too
  // must live until it is complete. Not counted in traffic().
  virtual std::unique_ptr<Request> NativeAllGather(
      std::span<const std::byte> /*own*/, std::span<std::byte> /*gathered*/,
      std::size_t /*capacity_bytes*/, std::vector<std::span<const std::byte>>& /*by_rank*/) {
    return nullptr;
  }
  virtual bool has_native_all_gather() const noexcept { return false; }

  // One step of a ring, as NCCL's own collectives take it: rank `ring.next` gets `out` while as
  // much comes from rank `ring.previous`, each as `messages` messages of equal size. Null where
  // Isend and Irecv take such a step. Every rank of a ring posts it at the same place among its
  // collectives. Not counted in traffic().
  virtual std::unique_ptr<Request> NativeRingStep(RingNeighbours /*ring*/,
                                                  std::span<const std::byte> /*out*/,
                                                  std::span<std::byte> /*in*/, int /*messages*/) {
    return nullptr;
  }

  // Blocks the caller until something may have changed, or for `limit`. Never spins for long.
  // Returns at once when Wake was called since the last call.
  virtual void Idle(std::chrono::nanoseconds limit) = 0;
  // Ends Idle. The one member that any thread may call.
  virtual void Wake() noexcept = 0;

  // A communicator over the ranks that pass the same color, ordered by key then rank. Collective
  // over this group and blocking, up to `deadline`; call it before training, never during.
  virtual std::unique_ptr<Communicator> Split(int color, int key,
                                              std::chrono::milliseconds deadline) = 0;
  // The same in two parts, for ranks that one thread serves, where none may block: once the request
  // is complete, EndSplit gives the communicator. Null where Split is to be called.
  virtual std::unique_ptr<Request> StartSplit(int /*color*/, int /*key*/) { return nullptr; }
  virtual std::unique_ptr<Communicator> EndSplit() { return nullptr; }

  // Point-to-point traffic of this communicator, by link class.
  virtual const TrafficByLink& traffic() const noexcept = 0;
};

}  // namespace sparfuse

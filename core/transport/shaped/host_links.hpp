// Holds the links that all ranks of a host emulate together, in shared memory: ports, which are
// plain numbers without a clock or a lock. Measures the host's own bandwidth between ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/transport/communicator.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// Shared memory without a name in any file system. It ends with the last process that maps it,
// however that process ends, and leaves nothing behind.
class SharedMemory {
 public:
  // Collective over `world`, whose ranks may be threads or processes, and blocking: `deadline`
  // bounds each wait. Zeroed; rank 0 calls `prepare` on it before others see it. Throws
  // Error{kUnsupported} on all ranks if one cannot map the memory of rank 0 (another host, or a
  // container of its own), Error{kTimeout} for a rank that does not arrive.
  SharedMemory(Communicator& world, std::size_t bytes,
               const std::function<void(std::byte*)>& prepare, std::chrono::milliseconds deadline);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  void Offer(Communicator& world, const std::function<void(std::byte*)>& prepare,
             std::chrono::milliseconds deadline);
  void Take(Communicator& world, std::chrono::milliseconds deadline);

  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

// A full-duplex port: the network card that the ranks of a node share, or a rank's own link within
// its node. Each direction carries one message at a time, first in first out: by the order of Send
// on the way out, by the order of arrival on the way in. Times and durations are in nanoseconds.
//
// A port lies in memory that processes share and is not synchronised. Zeroed memory is an unused
// port. A process that ends in the middle of a call spoils times of messages and nothing else.
class Port {
 public:
  static constexpr std::size_t kMostOnTheWay = 4096;
  // The result of EndOf for messages that have passed.
  static constexpr std::int64_t kPassed = 0;

  // Returns the time at which the first byte leaves: `now`, or the time at which the last byte of
  // earlier messages leaves.
  std::int64_t Send(std::int64_t now, std::int64_t duration);
  // Expects message `id` at `arrival`, which is later than `now`, so no message that has begun to
  // pass is moved. Returns false, and does nothing, if kMostOnTheWay messages have not passed yet.
  [[nodiscard]] bool Expect(std::int64_t now, std::uint64_t id, std::int64_t arrival,
                            std::int64_t duration);
  // Returns the time at which the last byte of `id` has passed inwards, given the messages expected
  // so far. A later call of Expect with an earlier arrival delays it.
  std::int64_t EndOf(std::uint64_t id) const;

 private:
  struct Message {
    std::int64_t arrival;
    std::int64_t duration;
    std::int64_t end;
    std::uint64_t id;
  };

  std::int64_t send_free_;
  std::uint64_t expected_;                       // of messages_
  std::array<Message, kMostOnTheWay> messages_;  // by arrival, equal ones by order of Expect
};

struct LinkShape {
  double gbps = 0;           // of each direction, 10^9 bit/s
  double alpha_seconds = 0;  // from the departure of a message's first byte to its arrival
};

struct NetworkShape {
  LinkShape between;                     // of the card that the ranks of a node share
  std::optional<LinkShape> within = {};  // of each rank's own link within its node
};

// Every message is scheduled on both ends' ports when it is sent, under one lock that also orders
// the clock. A process that is killed while it holds the lock leaves it to the next one.
class HostLinks {
 public:
  // Collective over `world`, as SharedMemory is. `deadline` bounds waits for the lock, too.
  HostLinks(Communicator& world, const NetworkShape& shape, std::chrono::milliseconds deadline);

  // The times of a message, on the clock of MonotonicNanoseconds.
  struct Sent {
    std::uint64_t id = 0;
    std::int64_t departure = 0;  // of the first byte
    std::int64_t left = 0;       // of the last byte
  };
  // Hands `bytes` to the network now. source, destination: ranks of `world`. Throws
  // Error{kUnsupported} if Port::kMostOnTheWay messages are on the way to the destination's port,
  // Error{kTimeout} if a stopped rank holds the lock.
  Sent Send(int source, int destination, std::size_t bytes);
  // Returns the time at which the last byte of message `id` has passed the destination's port; a
  // past time if it has passed. The time is final from the message's departure on, because later
  // messages arrive later. Errors as Send.
  std::int64_t EndOf(int source, int destination, std::uint64_t id);

 private:
  struct Segment;
  class Held;
  struct Link {
    double nanoseconds_per_byte = 0;
    std::int64_t alpha = 0;
  };
  std::size_t PortOf(int rank, LinkClass link) const;

  Topology topology_;
  std::array<Link, kLinkClasses> links_;
  std::chrono::milliseconds deadline_;
  SharedMemory memory_;
  Segment& segment_;
};

// Measures the bandwidth, in 10^9 bit/s, at which every rank receives from another while all send
// at once. The result is the slowest rank's best of a few messages, equal on all ranks. Ends as
// soon as `wanted` is reached; else retries for a while, since others may use the host for a
// moment. Infinite for one rank.
//
// Collective over `world`, on whose tag 0 nothing else is under way, and blocking: `deadline`
// bounds each wait. Cost: milliseconds if `wanted` is reached, else some hundred.
double HostGbps(Communicator& world, double wanted, std::chrono::milliseconds deadline);

}  // namespace sparfuse

// Holds the links that all ranks of a host emulate together, in memory that they share: ports,
// which are plain numbers without a clock or a lock, and what the ranks can pass on to one another.
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

// Has no name in any file system: it ends with the last process that has it mapped, however that
// ends, and leaves nothing behind.
class SharedMemory {
 public:
  // Collective over `world`, whose ranks may be threads or processes, and blocking: `deadline`
  // bounds each wait. Zeroed; rank 0 calls `prepare` on it before others see it. Throws
  // Error{kUnsupported} on all ranks where one cannot map the memory of rank 0 (another host, or a
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
// Lies in memory that processes share and is not synchronised; zeroed memory is a port that nothing
// has passed. A process that ends in the middle of a call spoils times of messages and nothing
// else.
class Port {
 public:
  static constexpr std::size_t kMostOnTheWay = 4096;
  // What EndOf says of messages that have passed.
  static constexpr std::int64_t kPassed = 0;

  // When the first byte leaves, which is `now` or when the last byte of what was sent before has
  // left.
  std::int64_t Send(std::int64_t now, std::int64_t duration);
  // Expects message `id` at `arrival`, which is later than `now`: nothing that has begun to pass is
  // moved. False, and nothing is done, where kMostOnTheWay have not passed yet.
  [[nodiscard]] bool Expect(std::int64_t now, std::uint64_t id, std::int64_t arrival,
                            std::int64_t duration);
  // When the last byte of `id` has passed inwards, by what is expected so far: what is expected
  // later and arrives earlier moves it back.
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
  std::array<Message, kMostOnTheWay> messages_;  // by arrival, equal ones as they were expected
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

  // Of a message; on MonotonicNanoseconds.
  struct Sent {
    std::uint64_t id = 0;
    std::int64_t departure = 0;  // of the first byte
    std::int64_t left = 0;       // the last byte has
  };
  // Hands `bytes` to the network now. source, destination: ranks of `world`. Throws
  // Error{kUnsupported} where Port::kMostOnTheWay messages are on the way to the destination's
  // port, Error{kTimeout} where a rank that is stopped holds the lock.
  Sent Send(int source, int destination, std::size_t bytes);
  // When the last byte of message `id` has passed the destination's port; a time in the past where
  // that is over. Final from its departure on: what is sent later arrives later. Errors as Send.
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

// 10^9 bit/s that every rank gets from another while all send at once: the best of a few messages
// of the rank for which that is least, equal on all ranks. Ends as soon as `wanted` is reached;
// else tries for a while, since others may use the host for a moment. Infinite for one rank.
//
// Collective over `world`, on whose tag 0 nothing else is under way, and blocking: `deadline`
// bounds each wait. Cost: milliseconds where `wanted` is reached, else some hundred.
double HostGbps(Communicator& world, double wanted, std::chrono::milliseconds deadline);

}  // namespace sparfuse

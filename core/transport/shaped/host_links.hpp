// Holds the links that all ranks of a host emulate together, in memory that they share.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/transport/communicator.hpp"
#include "core/transport/shaped/shared_memory.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

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

}  // namespace sparfuse

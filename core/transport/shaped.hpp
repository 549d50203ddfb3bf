// Makes transport `shaped`, which delays the messages of `threads` or `mpi` on one host as a slower
// network would, for emulated mode.
#pragma once

#include <memory>

#include "core/transport/communicator.hpp"

namespace sparfuse {

struct LinkShape {
  double gbps = 0;           // of each direction of a rank's network card, 10^9 bit/s
  double alpha_seconds = 0;  // from the departure of a message's first byte to its arrival
};

// Wraps a world, and takes it over. Every rank is a node of its own with one full-duplex network
// card, which communicators split from this one share.
//
// A message leaves the sender's card when those before it have left, at most gbps; its first byte
// arrives alpha later; it passes the receiver's card at gbps in order of arrival, cut-through (both
// cards work on it at once). A send is complete when the last byte has left, a receive when the
// last byte has passed the receiver's card. The departure time travels in a header on the monotonic
// clock, so all ranks must be on one host; a receive that is polled late by less than alpha is not
// late. Idle sleeps until the next known end, and to poll, never spins. The host's own transfer
// runs behind the emulated one and must be faster.
//
// traffic() counts payloads only. Has no native all-reduce: it could not be delayed.
// Throws Error{kConfig} for gbps out of [1e-4, 1e6] and alpha out of [100 us, an hour]: less cannot
// be emulated by sleeping, and more would overflow.
std::unique_ptr<Communicator> MakeShaped(std::unique_ptr<Communicator> inner, LinkShape shape);

}  // namespace sparfuse

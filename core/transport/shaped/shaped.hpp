// Makes transport `shaped`, which delays the messages of `threads` or `mpi` on one host as a slower
// network would, for emulated mode.
#pragma once

#include <chrono>
#include <memory>

#include "core/transport/communicator.hpp"
#include "core/transport/shaped/host_links.hpp"

namespace sparfuse {

// What less sleeping cannot emulate.
inline constexpr double kSmallestAlphaSeconds = 100e-6;

// Wraps a world, and takes it over; all of its ranks are on one host. Collective over it and
// blocking: `deadline` bounds each wait. Every node has one full-duplex network card, which its
// ranks share, and every rank a full-duplex link to the others of its node; communicators split
// from this one use the same. Where a node is one rank, `within` may be missing.
//
// A message leaves its card (or link) when those that were sent before it have left, at most gbps;
// its first byte arrives alpha later; it passes the receiver's at gbps in order of arrival,
// cut-through (both work on it at once). A send is complete when the last byte has left, a receive
// when the last byte has passed the receiver's card. Both are computed on the host's monotonic
// clock when the message is sent; a receive that is polled late by less than alpha is not late.
// Idle sleeps until the next known end, and to poll, never spins. The host's own transfer runs
// behind the emulated one and must be faster.
//
// traffic() counts payloads only. Has no native all-reduce: it could not be delayed.
// Throws Error{kConfig} for gbps out of [1e-4, 1e6] and alpha out of [100 us, an hour]: less cannot
// be emulated by sleeping, and more would overflow; and for nodes of several ranks without
// `within`. Throws Error{kUnsupported} where the ranks share no memory, and, with what was reached,
// where this host passes less on than the links of ranks that all send at once.
std::unique_ptr<Communicator> MakeShaped(std::unique_ptr<Communicator> inner,
                                         const NetworkShape& shape,
                                         std::chrono::milliseconds deadline);

}  // namespace sparfuse

// Makes transport `shaped`, which delays the messages of `threads` or `mpi` on one host like a
// slower network, for emulated mode.
#pragma once

#include <chrono>
#include <memory>

#include "core/transport/communicator.hpp"
#include "core/transport/shaped/host_links.hpp"

namespace sparfuse {

// Sleeping cannot emulate a smaller latency.
inline constexpr double kSmallestAlphaSeconds = 100e-6;

// Wraps and owns a world whose ranks are all on one host. Collective over it and blocking:
// `deadline` bounds each wait. Every node has one full-duplex network card, which its ranks share.
// Every rank has a full-duplex link to the other ranks of its node. Communicators split from this
// one use the same cards and links. If each node has one rank, `within` may be missing.
//
// A message leaves its card (or link) after all earlier messages, at most at gbps. Its first byte
// arrives alpha later. The message passes the receiver's card at gbps in order of arrival,
// cut-through (both cards work on it at once). A send is complete when the last byte has left, a
// receive when the last byte has passed the receiver's card. Both times are computed on the host's
// monotonic clock when the message is sent, so a receive that is polled late by less than alpha is
// not late. Idle sleeps until the next known end or the next poll, and never spins. The host's own
// transfer runs behind the emulated one and must be faster.
//
// traffic() counts payloads only. There is no native all-reduce, because it could not be delayed.
// Throws Error{kConfig} for gbps out of [1e-4, 1e6] and alpha out of [100 us, an hour]: sleeping
// cannot emulate less, and more would overflow. Throws it also for nodes of several ranks without
// `within`. Throws Error{kUnsupported} if the ranks share no memory, and, with the measured
// bandwidth, if this host is slower than the links of ranks that all send at once.
std::unique_ptr<Communicator> MakeShaped(std::unique_ptr<Communicator> inner,
                                         const NetworkShape& shape,
                                         std::chrono::milliseconds deadline);

}  // namespace sparfuse

// Makes transport `threads`: the ranks of a world are threads of one process. For tests and a
// laptop, and the oracle for the other transports.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/transport/communicator.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

// The communicators of ranks 0..ranks-1, each to be used by one thread.
//
// A message is copied once, from the sender's buffer to the receiver's, when both are posted: a
// send completes only when it is received. Requests must not outlive their communicator. When the
// last communicator of a rank is destroyed, what others still have pending with that rank, or start
// later, fails with Error{kComm} "rank R is lost". A rank that merely does nothing is silent, as a
// stopped process is. Throws Error{kConfig} unless ranks >= 1 and ranks_per_node >= 1.
std::vector<std::unique_ptr<Communicator>> MakeThreadsWorld(int ranks, int ranks_per_node);
// bells: [ranks] what wakes the thread that serves each rank, the same for all that one thread
// serves (SharedProgress); they outlive the world. Empty: each has a bell and a thread of its own.
std::vector<std::unique_ptr<Communicator>> MakeThreadsWorld(int ranks, int ranks_per_node,
                                                            std::span<Doorbell* const> bells);

}  // namespace sparfuse

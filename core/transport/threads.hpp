// Makes transport `threads`: the ranks of a world are threads of one process. It serves tests and
// laptops, and is the oracle for the other transports.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/transport/communicator.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {

// The communicators of ranks 0..ranks-1, each to be used by one thread.
//
// A message is copied once, from the sender's buffer to the receiver's, when both are posted. A
// send thus completes only when it is received. Requests must not outlive their communicator. When
// the last communicator of a rank is destroyed, pending and later requests of others with that rank
// fail with Error{kComm} "rank R is lost". A rank that merely does nothing is silent, like a
// stopped process. Throws Error{kConfig} unless ranks >= 1 and ranks_per_node >= 1.
//
// bells: [ranks] the doorbell of each rank's thread; ranks of one thread share it (SharedProgress).
// They outlive the world. Empty: each rank has a bell and a thread of its own.
std::vector<std::unique_ptr<Communicator>> MakeThreadsWorld(int ranks, int ranks_per_node,
                                                            std::span<Doorbell* const> bells = {});

}  // namespace sparfuse

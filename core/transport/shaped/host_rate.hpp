// Finds out what the ranks of a host pass on to one another.
#pragma once

#include <chrono>

#include "core/transport/communicator.hpp"

namespace sparfuse {

// 10^9 bit/s that every rank gets from another while all send at once: the best of a few messages
// of the rank for which that is least, equal on all ranks. Ends as soon as `wanted` is reached;
// else tries for a while, since others may use the host for a moment. Infinite for one rank.
//
// Collective over `world`, on whose tag 0 nothing else is under way, and blocking: `deadline`
// bounds each wait. Cost: milliseconds where `wanted` is reached, else some hundred.
double HostGbps(Communicator& world, double wanted, std::chrono::milliseconds deadline);

}  // namespace sparfuse

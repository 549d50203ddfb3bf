// Passes messages around rings of ranks, for measurements of links.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/transport/communicator.hpp"
#include "core/transport/task.hpp"

namespace sparfuse::harness {

inline constexpr int kRingTag = 16;

// In a ring of the `count` ranks from `first` on.
RingNeighbours InRing(int rank, int first, int count);

// Null where the backend has no ring step of its own. It has none of nothing: a byte instead.
// out, in: of at least a byte.
std::unique_ptr<Request> NativeStep(Communicator& world, RingNeighbours ring,
                                    std::span<std::byte> out, std::span<std::byte> in,
                                    int messages);

// `rounds` times: every rank sends to the next and receives from the one before.
Task RingRounds(Communicator& world, RingNeighbours ring, std::span<std::byte> out,
                std::span<std::byte> in, int rounds);

}  // namespace sparfuse::harness

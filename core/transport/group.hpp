// Checks and computes what all transports have in common about groups of ranks.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/transport/communicator.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

// Throws Error{kInternal} unless 0 <= peer < size and 0 <= tag < 2^15.
void CheckAddress(int peer, int size, int tag);

// Waits until all messages of a group's set-up have come and gone. Throws Error{kTimeout} past the
// deadline, "WHAT: rank 1, 3 did not arrive within 500 ms".
void AwaitPeers(Communicator& communicator, std::span<const std::unique_ptr<Request>> receives,
                std::span<const std::unique_ptr<Request>> sends, std::chrono::milliseconds deadline,
                std::string_view what);

struct SplitChoice {
  int color = 0;
  int key = 0;
};

// The group that `rank` joins when rank r of the parent chose choices[r].
struct SplitGroup {
  std::vector<int> members;  // ranks of the parent, in the order of the group
  int rank = 0;              // of the caller, in the group
  Topology topology;
};

// Throws Error{kConfig} when the caller's color is negative, or when the group cannot be numbered
// node by node with equally many ranks on every node but the last.
SplitGroup ComputeSplit(const Topology& parent, int rank, std::span<const SplitChoice> choices);

}  // namespace sparfuse

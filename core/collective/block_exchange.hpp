// Moves coded blocks among some ranks of a communicator, and runs and models an all-reduce of
// blocks in two levels.
#pragma once

#include <cstddef>
#include <vector>

#include "core/coding/quantizers/block_codes.hpp"
#include "core/collective/exchange_buffers.hpp"
#include "core/collective/rounds.hpp"
#include "core/transport/task.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse {

using CodedBlocks = std::vector<std::vector<std::byte>>;  // [members]

// Sends to[j] to members[j] and receives from[j], which has the expected size, from there. Empty
// blocks are not sent, and this rank, members[own], sends nothing to itself. All arguments outlive
// the task. Throws Error{kComm} naming a rank that sends another number of bytes.
Task ExchangeBlocks(Communicator& communicator, const std::vector<int>& members, std::size_t own,
                    const CodedBlocks& to, CodedBlocks& from, int tag);

// Sums buffers.dense over N nodes of g ranks each, in blocks of `form`:
//
//   within nodes   each rank sends part j of g to the j-th rank of its node, which sums
//   between nodes  that rank sends shard k of N of the sum to the j-th rank of node k, which sums
//   between nodes  that rank encodes its sum and sends it to the j-th ranks of all nodes
//   within nodes   these pass the received bytes on to all ranks of their nodes
//
// A value is rounded three times: before each of the first two steps, and as a sum. All ranks get
// the same bytes. Uses tags `tag` to `tag` + 3.
Task RunTwoLevelBlocks(const BlockForm& form, Communicator& communicator, ExchangeBuffers& buffers,
                       int tag);
// Cost: O(ranks * (nodes + ranks of a node)).
RoundPlan TwoLevelBlockRounds(const BlockForm& form, std::size_t elements,
                              const Topology& topology);

}  // namespace sparfuse

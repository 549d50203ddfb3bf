// Moves coded blocks among some ranks of a communicator, and says how an all-reduce of blocks does
// it in two levels.
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

// to[j] goes to members[j], from[j], which has the size that is expected, comes from there; nothing
// is sent where that is empty, nor to this rank, which is members[own]. All outlive the task.
// Throws Error{kComm} naming the rank of which another number of bytes comes.
Task ExchangeBlocks(Communicator& communicator, const std::vector<int>& members, std::size_t own,
                    const CodedBlocks& to, CodedBlocks& from, int tag);

// Sums buffers.dense over N nodes of g ranks each, in blocks of `form`:
//
//   within nodes   what each rank has of part j of g goes to the j-th rank of its node, which adds
//   between nodes  what it has of shard k of N of that goes to the j-th rank of node k, which adds
//   between nodes  the sum, encoded, goes to the j-th ranks of all nodes,
//   within nodes   and on to all ranks of these as it came
//
// A value is rounded three times: before each of the first two, and as a sum. All ranks go on with
// the same bytes. Uses tag to tag + 3.
Task RunTwoLevelBlocks(const BlockForm& form, Communicator& communicator, ExchangeBuffers& buffers,
                       int tag);
// Cost: O(ranks * (nodes + ranks of a node)).
RoundPlan TwoLevelBlockRounds(const BlockForm& form, std::size_t elements,
                              const Topology& topology);

}  // namespace sparfuse

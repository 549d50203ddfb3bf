// Moves coded blocks among some ranks of a communicator, and runs and models all-reduces of blocks
// in one level and in two.
#pragma once

#include <cstddef>
#include <span>
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

// An all-reduce of floats that travel in blocks of `form`. In one level each rank sends its shard j
// to rank j, which sums, encodes the sum and sends it to all: two roundings of a value. In two
// levels, over N nodes of g ranks each:
//
//   within nodes   each rank sends part j of g to the j-th rank of its node, which sums
//   between nodes  that rank sends shard k of N of the sum to the j-th rank of node k, which sums
//   between nodes  that rank encodes its sum and sends it to the j-th ranks of all nodes
//   within nodes   these pass the received bytes on to all ranks of their nodes
//
// A value is rounded three times: before each of the first two steps, and as a sum. All ranks get
// the same bytes; rounding errors are lost. A form that is stochastic draws by the elements, the
// step, the rank and the number of the rounding.
struct BlockSum {
  BlockForm form;
  bool two_levels = false;
  // In one level: sums go around a ring, in P - 1 steps, and not from each owner to all at once.
  bool gathers_around = false;

  bool InTwoLevels(const Topology& topology) const {
    return two_levels && topology.nodes() > 1 && topology.ranks_per_node > 1;
  }
};

// Replaces `data`, of equal size on all ranks, by its sum over ranks. `buffers` runs the coding in
// parallel with the communication. Arguments outlive the task. Uses tags `tag` to `tag` + 3.
Task RunBlockAllReduce(const BlockSum& sum, Communicator& communicator, ExchangeBuffers& buffers,
                       std::span<float> data, int tag);
// Cost: O(ranks) in one level, O(ranks * (nodes + ranks of a node)) in two.
RoundPlan BlockAllReduceRounds(const BlockSum& sum, std::size_t elements, const Topology& topology);

}  // namespace sparfuse

// Declares the all-reduces of blocks that share a scale, in one level and in two.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/coding/quantizers/block_codes.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse {

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

// Options of collectives that sum blocks: "block", "rounding" and "levels".
std::vector<OptionSpec> BlockSumOptions();
// Throws Error{kConfig} for a size that blocks cannot have.
BlockSum BlockSumOf(BlockCode code, const Options& resolved);
// Why ranks cannot sum so (CollectiveDescriptor::refuses).
std::string WhyNoBlockSum(const Options& resolved, const Topology& topology);

CollectiveDescriptor Int8BlocksAllReduce();
CollectiveDescriptor Int4BlocksAllReduce();
CollectiveDescriptor Fp8BlocksAllReduce();

}  // namespace sparfuse

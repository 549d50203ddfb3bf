// Describes OmniReduce, the collective that sums block by block and sends only blocks that some
// rank needs.
//
// Source: J. Fei, C.-Y. Ho, A. N. Sahu, M. Canini & A. Sapio, "Efficient Sparse Collective
//         Communication and its Application to Accelerate Distributed Deep Learning", SIGCOMM 2021:
//         streaming aggregation over blocks, with aggregators on the workers' own machines.
//
// Every rank is a worker, and the aggregator of a contiguous shard of the blocks. A shard is cut
// into streams (omnireduce_exchange.hpp), which go on side by side: while messages of every other
// stream travel, the others are summed. A stream takes rounds of two steps, in which all workers
// that may send blocks do, and the aggregator sends all of them the sums of at most `bundle`
// blocks. With B_r blocks of rank r and U of any,
//
//   messages  of sums of a stream: max(1, ceil(its U / bundle)) to each other rank;
//             of its workers: 1 at first, then one while they have blocks left, at most as many
//   bytes     4 words of a message + (4 + 4 block) each block: B_r once from rank r, but for its
//             own shard's, and U once to every rank, but for its own shard's
//
// Elements of a block that its ranks have not selected travel as zeros; sums that are 0 are not
// given to Apply.
#pragma once

#include <cstddef>

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor OmniReduceCollective();

// Streams of a shard where each rank is to select `kept` elements: as many as the blocks that hold
// them fill with messages, at most `slots`.
std::size_t OmniReduceStreams(std::size_t kept, std::size_t block, std::size_t bundle,
                              std::size_t slots, std::size_t ranks);

}  // namespace sparfuse::baselines

// Describes OmniReduce, the collective that sums block by block and sends only blocks that some
// rank needs.
//
// Source: J. Fei, C.-Y. Ho, A. N. Sahu, M. Canini & A. Sapio, "Efficient Sparse Collective
//         Communication and its Application to Accelerate Distributed Deep Learning", SIGCOMM 2021:
//         streaming aggregation over blocks, with aggregators on the workers' own machines.
//
// Every rank is a worker, and the aggregator of a contiguous shard of the blocks. A shard is cut
// into streams (omnireduce_exchange.hpp), which run side by side: while messages of every second
// stream travel, the others are summed. A round of a stream has two steps: all workers that may
// send blocks do so; the aggregator sends to all of them the sums of at most `bundle` blocks. If
// rank r has B_r blocks, and U blocks are on any rank,
//
//   messages  sums of a stream: max(1, ceil(its U / bundle)) to each other rank;
//             its workers: 1 at first, then one as long as they have blocks left, at most as many
//   bytes     4 words of a message + (4 + 4 block) each block. Rank r sends B_r blocks once, except
//             those of its own shard; every rank receives U blocks once, except its own shard's
//
// Elements of a block that a rank has not selected travel as zeros. Apply does not get sums that
// are 0.
#pragma once

#include <cstddef>

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor OmniReduceCollective();

// The number of streams of a shard if each rank is to select `kept` elements: the number of
// messages that a shard's part of the blocks of these elements fills, 1 to `slots`.
std::size_t OmniReduceStreams(std::size_t kept, std::size_t block, std::size_t bundle,
                              std::size_t slots, std::size_t ranks);

}  // namespace sparfuse::baselines

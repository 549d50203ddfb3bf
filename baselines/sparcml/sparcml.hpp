// Describes SparCML's two collectives: recursive doubling, and the split all-gather.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "sparcml-recursive-doubling". A rank below P' notes the bytes sent in each of the log2 P' rounds;
// other ranks note as many zeros. Then all note the bytes of the sum. Notes nothing on one rank.
CollectiveDescriptor SparcmlRecursiveDoubling();

// "sparcml-split-allgather". A rank notes three numbers of elements: sent to other owners, received
// from other ranks for its region, and in the region's sum. Notes nothing on one rank.
CollectiveDescriptor SparcmlSplitAllgather();

}  // namespace sparfuse::baselines

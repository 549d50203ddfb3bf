// Describes SparCML's two collectives: recursive doubling, and the split all-gather.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "sparcml-recursive-doubling". It notes, of ranks below P', the bytes sent in each of the log2 P'
// rounds, of others as many zeros; then the bytes of the sum. Nothing on one rank.
CollectiveDescriptor SparcmlRecursiveDoubling();

// "sparcml-split-allgather". It notes the elements that a rank has sent to other owners, those that
// it got from other ranks for its region, and those of the region's sum. Nothing on one rank.
CollectiveDescriptor SparcmlSplitAllgather();

}  // namespace sparfuse::baselines

// Sums around a ring on which every rank selects from its sum before it passes that on:
// CaSync-Ring.
//
// Source:      Y. Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN
//              Training, SOSP 2021, section 3 (HiPress). Its core is not published: by the paper.
//
// P ranks cut a range into P partitions (Shards of core/collective/algorithms.hpp), of which rank r
// begins with the r-th:
//
//   P - 1 steps   encode a partition, send it on; receive the one before it, decode and merge
//   P - 1 steps   pass the final codes on, which every rank decodes once
//
// To encode is to select the k_b = max(1, trunc(m k / n)) largest of a partition of m elements; to
// decode and merge, to add them to what the rank has accumulated there. So a rank's residual takes
// what it has dropped, its own and what had come to it, and nothing is lost. One rank makes the
// final code of a partition, and all have its bits.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "casync-ring": selects from what has accumulated, in place. 2 (P - 1) messages a rank, of k_b
// elements each; partitions without elements are not sent.
CollectiveDescriptor CasyncRing();

}  // namespace sparfuse::baselines

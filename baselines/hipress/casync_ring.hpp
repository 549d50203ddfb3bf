// Sums around a ring on which every rank selects from its sum before it passes the selection on:
// CaSync-Ring.
//
// Source:      Y. Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN
//              Training, SOSP 2021, section 3 (HiPress). Its core is not published; this follows
//              the paper.
//
// P ranks cut a range into P partitions (Shards of core/collective/algorithms.hpp). Rank r begins
// with partition r:
//
//   P - 1 steps   encode a partition, send it on; receive the one before it, decode and merge
//   P - 1 steps   pass the final codes on, which every rank decodes once
//
// Encoding selects the k_b = max(1, trunc(m k / n)) largest of a partition of m elements. Decoding
// and merging add a selection to the values that the rank has accumulated there. A rank's residual
// so keeps all values that it dropped, its own and received ones, and nothing is lost. One rank
// makes the final code of a partition, so that all ranks have equal bits.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "casync-ring": selects from the accumulated values, in place. Sends 2 (P - 1) messages a rank, of
// k_b elements each; partitions without elements are not sent.
CollectiveDescriptor CasyncRing();

}  // namespace sparfuse::baselines

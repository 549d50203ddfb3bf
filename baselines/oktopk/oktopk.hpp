// Declares Ok-Topk's all-reduce: payloads are summed by regions with about equally many selected
// elements, and every rank gets about the k largest sums.
//
// Source:      S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning,
//              PPoPP 2022, Algorithms 1 and 2; constants as in the published code.
//
//   1. In steps 0, R, 2 R, ... the ranks agree on P regions.
//   2. Every rank sends to each other rank its selected elements of that rank's region; owners add
//      (oktopk_parts.hpp).
//   3. In steps 0, T, 2 T, ... all sums that are not 0 are gathered on all ranks. The k largest are
//      the result, and the least of their magnitudes is the global threshold. In other steps the
//      sums that reach the threshold are gathered and are the result. Their number adapts the
//      threshold (oktopk_parts.hpp). If they lie too unevenly they are moved to equal blocks first.
//   4. A value that a rank selected at an index outside the result returns to its residual.
//
// A step with an adapted threshold sends 2 k 8 (P - 1) / P bytes a rank if k sums reach it, and at
// most another 8 k to balance them. A step with an exact one gathers the union of the selections.
//
// Deviations:  the threshold is also exact in the first step of a range or of another k, and after
//              a step in which fewer than k sums were not 0. Ties at the k-th largest go to the
//              smaller indices, so that k sums are the result. Messages hold indices and values,
//              and their lengths give the counts; the published code exchanges P - 1 counts first.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor OkTopkCollective();

}  // namespace sparfuse::baselines

// Declares Ok-Topk's all-reduce: payloads are added up by regions that hold about as much of what
// is selected, and every rank gets about the k largest sums.
//
// Source:      S. Li & T. Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning,
//              PPoPP 2022, Algorithms 1 and 2; constants as in the published code.
//
//   1. In steps 0, R, 2 R, ... the ranks agree on P regions.
//   2. Every rank sends each other one what it has selected of its region; owners add
//      (oktopk_parts.hpp).
//   3. In steps 0, T, 2 T, ... all sums that are not 0 are gathered on all ranks, the k largest are
//      the result, and the least of their magnitudes is the global threshold. In other steps the
//      sums that reach the threshold are gathered and are the result; by how many they are the
//      threshold is adapted (oktopk_parts.hpp). Where they lie too unevenly they are moved to
//      equal blocks first.
//   4. What a rank selected at an index that is not in the result returns to its residual.
//
// A step between sends 2 k 8 (P - 1) / P bytes a rank where k sums reach the threshold, at most
// another 8 k to balance them. An exact one is a gather of the union of the selections.
//
// Deviations:  the threshold is also exact in the first step of a range or of another k, and after
//              a step in which fewer than k sums were not 0. Ties at the k-th largest go to the
//              smaller indices, so that k sums are the result. Messages hold indices and values,
//              and their lengths say the counts, of which the published code exchanges P - 1 first.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor OkTopkCollective();

}  // namespace sparfuse::baselines

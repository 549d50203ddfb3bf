// Sums payloads in a tree that keeps the k largest of every two: gTop-k.
//
// Source:      S. Shi et al., A Distributed Synchronous SGD Algorithm with Global Top-k
//              Sparsification for Low Bandwidth Networks, ICDCS 2019, algorithms 2 and 3, and the
//              authors' code.
//
// Every rank sends k elements. In round i = 0, 1, ... the ranks that are multiples of 2^i take
// part. Every second one sends its elements to its left neighbour. The neighbour adds them to its
// own and keeps the k of the largest magnitude, of equal ones the first. After ceil(log2 P) rounds
// rank 0 has the result and broadcasts it along the same tree, so that replicas are bit-equal. A
// participant without a partner keeps its elements, so any P is possible. The union of two
// selections of k elements has at least k: every message has k elements, and rounds follow from k.
//
// Dropped elements return to residuals, so that nothing is lost. If an index is not in the result,
// every rank takes back its own value. If it is, the rank that dropped a sum on the way takes back
// that sum. The authors' code loses the second kind (option "compat").
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "gtopk": requires equal counts on all ranks; Run throws Error{kComm} naming a rank that differs.
// Keeps up to k log2 P dropped elements while it runs.
CollectiveDescriptor GtopkCollective();

}  // namespace sparfuse::baselines

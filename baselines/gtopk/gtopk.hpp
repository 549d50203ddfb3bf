// Sums payloads in a tree that keeps the k largest of every two: gTop-k.
//
// Source:      S. Shi et al., A Distributed Synchronous SGD Algorithm with Global Top-k
//              Sparsification for Low Bandwidth Networks, ICDCS 2019, algorithms 2 and 3, and the
//              authors' code.
//
// Every rank sends k elements. In round i = 0, 1, ... the ranks that are multiples of 2^i take
// part: each second one sends what it has to its left neighbour, which adds it to its own and keeps
// the k elements of the largest magnitude, of equal ones the first. After ceil(log2 P) rounds rank
// 0 has the result, which is broadcast from it along the same tree, so that replicas are bit-equal.
// A participant without a partner goes on as it is: any P will do. The union of two selections of k
// elements has k or more: what travels is always k elements, and rounds follow from k alone.
//
// What is dropped goes back, so that nothing is lost: of an index that is not in the result, every
// rank takes back its own value; of one that is, the rank that dropped a sum on the way takes that
// sum back. The authors' code loses the second kind (option "compat").
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "gtopk": equal counts on all ranks; Run throws Error{kComm} naming the rank where they differ.
// Remembers up to k log2 P dropped elements while it runs.
CollectiveDescriptor GtopkCollective();

}  // namespace sparfuse::baselines

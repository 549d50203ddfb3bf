// Describes SparCML's two collectives.
//
// The first sums payloads by recursive doubling: SparCML's sparse all-reduce for few elements or
// fast networks.
//
// Source: C. Renggli et al., SparCML: High-Performance Sparse Communication for Machine Learning,
//         SC 2019: SSAR_Recursive_double, on streams that switch to a dense form.
//
// In round j = 0, 1, ... ranks r and r xor 2^j send one another what they have and add it, so that
// after log2 P rounds all have the sum. What travels is the union of 2^j ranks' selections: it
// grows from round to round, and becomes dense where elements with indices would take as many
// bytes. A sum decides by its own size, and a message's length says which form it has: no counts
// travel first. Partners add the same two sums, and a + b = b + a: replicas are bit-equal. Where P
// is no power of two, ranks from the largest power P' on send their payload to rank r - P' first,
// and get the sum from it at last.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "sparcml-recursive-doubling". It notes, of ranks below P', the bytes sent in each of the log2 P'
// rounds, of others as many zeros; then the bytes of the sum. Nothing on one rank.
CollectiveDescriptor SparcmlRecursiveDoubling();

// Sums payloads region by region at owners and gathers the sums: SparCML's split all-gather, which
// Ok-Topk's authors compare with as TopK-DSA.
//
// Source: C. Renggli et al., SparCML: High-Performance Sparse Communication for Machine Learning,
//         SC 2019: SSAR_Split_allgather and DSAR_Split_allgather, which ends dense; S. Li & T.
//         Hoefler, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP 2022, which
//         compares with them as TopkDSA, and its code.
//
// The range is cut into P regions of n/P elements, rounded down; the last one has the rest. Every
// rank sends each owner what it has selected of its region, all at once, empty ones too: a
// message's length says its count. Owners add in rank order, so that sums are the same wherever
// they are used, and replicas bit-equal. Then counts are gathered, by which all ranks decide alike
// whether regions are gathered dense or as elements with indices.

// "sparcml-split-allgather". It notes the elements that a rank has sent to other owners, those that
// it got from other ranks for its region, and those of the region's sum. Nothing on one rank.
CollectiveDescriptor SparcmlSplitAllgather();

}  // namespace sparfuse::baselines

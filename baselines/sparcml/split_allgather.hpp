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
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// "sparcml-split-allgather". It notes the elements that a rank has sent to other owners, those that
// it got from other ranks for its region, and those of the region's sum. Nothing on one rank.
CollectiveDescriptor SparcmlSplitAllgather();

}  // namespace sparfuse::baselines

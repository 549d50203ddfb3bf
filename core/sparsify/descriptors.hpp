// Declares the descriptors that registry.cpp joins, one function for each sparsifier's file, and
// the counts and names that other parts share with one sparsifier.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor TopKDescriptor();
SparsifierDescriptor BlockTopKDescriptor();
SparsifierDescriptor ChunkedTopKDescriptor();
SparsifierDescriptor RandomKDescriptor();
SparsifierDescriptor DgcDescriptor();
SparsifierDescriptor GaussianKDescriptor();
SparsifierDescriptor GaussianKPaperDescriptor();
SparsifierDescriptor SidcoDescriptor();
SparsifierDescriptor SidcoPaperDescriptor();
SparsifierDescriptor RedSyncDescriptor();
SparsifierDescriptor MsTopKDescriptor();
SparsifierDescriptor ThresholdDescriptor();
SparsifierDescriptor NonzerosDescriptor();
SparsifierDescriptor AdTopKDescriptor();
SparsifierDescriptor AdTopKInterleavedDescriptor();
SparsifierDescriptor AdTopKThresholdDescriptor();

// Elements that `block-topk` keeps of n: those of as many whole blocks as hold KeptCount(n,
// density), at most n. block >= 1.
std::size_t BlockTopKCount(std::size_t n, std::size_t block, double density);

// `nonzeros` is for gradients that are sparse by nature: an embedding's, of which a batch touches
// few rows. It sends all that is not 0.
inline constexpr std::string_view kNonzeros = "nonzeros";

}  // namespace sparfuse

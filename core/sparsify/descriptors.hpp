// Declares the descriptors that registry.cpp joins, one function for each sparsifier's file, and
// the counts and names that other parts share with one sparsifier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// SparsifierDescriptor::make of a sparsifier without options and random numbers.
template <class T>
std::unique_ptr<Sparsifier> MakePlain(const Options& /*resolved*/, std::uint64_t /*seed*/) {
  return std::make_unique<T>();
}

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

// The number of elements that `block-topk` keeps of n: the fewest whole blocks that hold
// KeptCount(n, density) elements, at most n. block >= 1.
std::size_t BlockTopKCount(std::size_t n, std::size_t block, double density);

// `nonzeros` sends every element that is not 0. It is for gradients that are sparse by nature, such
// as an embedding's, where a batch touches few rows.
inline constexpr std::string_view kNonzeros = "nonzeros";

}  // namespace sparfuse

// Describes the sparsifier `block-topk`, which keeps whole blocks of neighbouring elements, for
// collectives that send blocks.
#pragma once

#include <cstddef>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor BlockTopKDescriptor();

// Elements that it keeps of n: those of as many whole blocks as hold KeptCount(n, density), at most
// n. block >= 1.
std::size_t BlockTopKCount(std::size_t n, std::size_t block, double density);

}  // namespace sparfuse

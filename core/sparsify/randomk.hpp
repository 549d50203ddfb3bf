// Random-k, the same indices on every rank.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor RandomKDescriptor();

}  // namespace sparfuse

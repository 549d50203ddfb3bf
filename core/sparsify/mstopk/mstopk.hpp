// Describes the sparsifier `mstopk`, top-k by bisection of the range of magnitudes.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor MsTopKDescriptor();

}  // namespace sparfuse

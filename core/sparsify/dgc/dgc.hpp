// Describes the sparsifier `dgc`, Deep Gradient Compression's sampled threshold.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor DgcDescriptor();

}  // namespace sparfuse

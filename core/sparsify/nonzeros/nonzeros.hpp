// Describes the sparsifier `nonzeros`, for gradients that are sparse by nature: an embedding's, of
// which a batch touches few rows. It sends all that is not 0.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor NonzerosDescriptor();

}  // namespace sparfuse

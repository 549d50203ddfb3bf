// Describes the sparsifier `redsync`: exact top-k behind a trimmed threshold search.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor RedSyncDescriptor();

}  // namespace sparfuse

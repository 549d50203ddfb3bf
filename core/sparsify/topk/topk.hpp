// Describes the sparsifier `topk`: exact top-k with fused error feedback.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor TopKDescriptor();

}  // namespace sparfuse

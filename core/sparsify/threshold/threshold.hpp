// Describes the sparsifier `threshold`: everything above a threshold that the user gives.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor ThresholdDescriptor();

}  // namespace sparfuse

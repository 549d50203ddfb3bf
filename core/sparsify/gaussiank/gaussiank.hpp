// Describes the sparsifiers `gaussiank`, whose threshold comes from the mean and the deviation of a
// tensor.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor GaussianKDescriptor();
SparsifierDescriptor GaussianKPaperDescriptor();

}  // namespace sparfuse

// Describes the sparsifier `nonzeros`, for gradients that are sparse by nature: an embedding's, of
// which a batch touches few rows. It sends all that is not 0.
#pragma once

#include <string_view>

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

inline constexpr std::string_view kNonzeros = "nonzeros";
SparsifierDescriptor NonzerosDescriptor();

}  // namespace sparfuse

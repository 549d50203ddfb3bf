// Computes the buffer lengths that SAFusion's published code plans, from its own tables of times.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/fusion/layout.hpp"

namespace sparfuse {

// Tensors of each buffer as the published planner lists them, quirks included: the first counts one
// more than it holds, and a buffer may be empty, so that the sum is the number of tensors plus one.
// `model` is a row of the published backward times (core/cost/authors_tables.hpp).
std::vector<std::size_t> AuthorsBufferLengths(const GradientLayout& layout, std::string_view model,
                                              double density);

}  // namespace sparfuse

// Sizes of the models that the catalog states and the models are built from.
#pragma once

#include <cstddef>

namespace sparfuse {

inline constexpr std::size_t kTextWindow = 64;  // tokens that a text sample predicts

}  // namespace sparfuse

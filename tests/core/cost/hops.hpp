// Names the hops of CollectiveLinks by their index.
#pragma once

#include <cstddef>

#include "core/cost/cost_model.hpp"

namespace sparfuse {

inline constexpr auto kWithin = static_cast<std::size_t>(LinkClass::kIntraNode);
inline constexpr auto kBetween = static_cast<std::size_t>(LinkClass::kInterNode);

}  // namespace sparfuse

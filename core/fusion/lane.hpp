// Names the places where a rank does local work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparfuse {

// Where local work runs. kCompute is the thread or stream of forward and backward: work asked for
// while a gradient is announced delays backward, as a hook does. kSide overlaps with it; kHost is a
// processor beside an accelerator, on a machine without one another thread.
enum class Lane : std::uint8_t { kCompute, kSide, kHost };
inline constexpr std::size_t kLanes = 3;
std::string_view LaneName(Lane lane);

}  // namespace sparfuse

// Measures how long something takes.
#pragma once

#include <chrono>

namespace sparfuse {

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace sparfuse

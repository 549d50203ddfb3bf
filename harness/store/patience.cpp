#include "harness/store/patience.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace sparfuse::harness {

void Patience::Note(std::size_t done, const std::string& what, std::size_t of) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::seconds(2);
  fmt::print(stderr, "{}{} {}\n", done, of > 0 ? fmt::format(" of {}", of) : "", what);
}

}  // namespace sparfuse::harness

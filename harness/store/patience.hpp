// Says on standard error how far something is that takes longer than one waits without a word.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace sparfuse::harness {

class Patience {
 public:
  // To be called often: prints "12,000 of 100,000 trials" after two seconds, and then every two
  // seconds. of: 0 if it is not known.
  void Note(std::size_t done, const std::string& what, std::size_t of = 0) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(2);
    fmt::print(stderr, "{}{} {}\n", done, of > 0 ? fmt::format(" of {}", of) : "", what);
  }

 private:
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(2);
};

}  // namespace sparfuse::harness

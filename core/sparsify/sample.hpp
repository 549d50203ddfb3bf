// A stratified random sample of a tensor's 64-byte lines: as many bytes travel as are looked at.
#pragma once

#include <cstddef>

#include "core/sparsify/random_stream.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

inline constexpr std::size_t kLine = 16;  // floats

// Calls body(i, at) for i in [0, lines): `at` is the first of kLine elements, drawn from the i-th
// of `lines` equal parts of [0, n). The same in every run. Precondition: 1 <= lines <= n / kLine.
template <class Body>
void ForSampledLines(std::size_t n, std::size_t lines, const TensorInfo& info, const Body& body) {
  const RandomStream stream(0, info.id, info.step);
  const std::size_t all = n / kLine;
  for (std::size_t i = 0; i < lines; ++i) {
    const std::size_t first = i * all / lines;
    const std::size_t width = (i + 1) * all / lines - first;
    body(i, (first + stream.Below(width, i)) * kLine);
  }
}

}  // namespace sparfuse

// Computes statistics by their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/sparsify/scan/statistics.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {

inline std::uint32_t Key(float x) { return Bits(x) & kAbsMask; }

// Computes the statistics of `wanted` in double precision, element by element.
inline Statistics MeasureByDefinition(const std::vector<float>& x, const Statistics& wanted) {
  Statistics s = wanted;
  s.n = x.size();
  for (const float v : x) {
    const double a = std::abs(static_cast<double>(v));
    s.sum += v;
    s.sum_abs += a;
    s.sum_squares += a * a;
    s.max_key = std::max(s.max_key, Key(v));
    for (std::size_t t = 0; t < s.tail_count; ++t) {
      if (Key(v) < s.tails[t].key) continue;
      ++s.tails[t].sums.count;
      s.tails[t].sums.sum_abs += a;
      s.tails[t].sums.sum_squares += a * a;
    }
    if (!std::isnormal(v)) continue;
    s.sum_log += std::log(a);
    ++s.log_count;
  }
  return s;
}

}  // namespace sparfuse::testing

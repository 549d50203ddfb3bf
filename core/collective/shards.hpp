// Splits a range among the ranks of a group: shard j belongs to member j.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sparfuse {

// n elements in P parts of n/P + [j < n mod P]. Numbers of parts are taken modulo P.
struct Shards {
  std::size_t elements;
  std::size_t members;

  std::size_t Size(std::size_t shard) const {
    return elements / members + (shard % members < elements % members ? 1 : 0);
  }
  std::size_t Begin(std::size_t shard) const {
    const std::size_t j = shard % members;
    return j * (elements / members) + std::min(j, elements % members);
  }
  std::size_t NonEmpty() const { return std::min(elements, members); }
};

}  // namespace sparfuse

// Makes Zen with options, and payloads of ranks for its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "baselines/zen/zen.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::testing {

inline std::unique_ptr<Collective> MakeZen(const Options& options = {}) {
  static const CollectiveDescriptor kZen = baselines::ZenCollective();
  return MakeCollective(kZen, options);
}

inline Options Choice(const char* option, const char* value) {
  return {{option, std::string(value)}};
}

// Integers, whose sums are exact; the supports of ranks overlap.
inline Sent RandomSent(std::size_t ranks, std::size_t elements, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Sent sent{"random", elements, count, {}};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    SparseVector own;
    while (own.size() < count) {
      own[static_cast<std::uint32_t>(random() % elements)] =
          static_cast<float>(static_cast<int>(random() % 19) - 9);
    }
    sent.by_rank.push_back(std::move(own));
  }
  return sent;
}

inline std::vector<float> SumOf(const Sent& sent) {
  std::vector<float> sum(sent.elements);
  for (const SparseVector& own : sent.by_rank) {
    for (const auto& [index, value] : own) sum[index] += value;
  }
  return sum;
}

}  // namespace sparfuse::testing

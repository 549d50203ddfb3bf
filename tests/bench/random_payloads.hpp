// Makes sparse payloads of several ranks, with randomly chosen elements.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "core/collective/collective.hpp"

namespace sparfuse::bench {

struct Payloads {
  std::vector<std::vector<std::uint32_t>> indices;
  std::vector<std::vector<float>> values;
  std::vector<SparsePayload> views;
};

inline const Payloads& MakePayloads(std::size_t n, std::size_t ranks, double density,
                                    std::uint32_t seed = 3) {
  static std::map<std::tuple<std::size_t, std::size_t, double, std::uint32_t>, Payloads> cache;
  auto [it, fresh] = cache.try_emplace({n, ranks, density, seed});
  Payloads& p = it->second;
  if (!fresh) return p;
  std::mt19937 random(seed);
  const auto bound = static_cast<std::uint32_t>(density * 4294967295.0);
  p.indices.resize(ranks);
  p.values.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      if (random() > bound) continue;
      p.indices[r].push_back(static_cast<std::uint32_t>(i));
      p.values[r].push_back(static_cast<float>(i % 17) - 8.0f);
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) p.views.push_back({p.indices[r], p.values[r]});
  return p;
}

}  // namespace sparfuse::bench

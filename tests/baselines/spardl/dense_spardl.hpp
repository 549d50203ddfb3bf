// Runs SparDL's algorithm on dense vectors, and makes up vectors of the ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "baselines/spardl/spardl.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::testing {

struct Form {
  std::size_t teams = 1;
  bool lazy = true;
  bool doubling = false;
  bool serial = false;

  Options options() const {
    return {{"teams", static_cast<std::int64_t>(teams)},
            {"cut", std::string(lazy ? "lazy" : "eager")},
            {"sag", std::string(doubling ? "recursive-doubling" : "bruck")},
            {"serial_blocks", serial}};
  }
  std::unique_ptr<Collective> Make() const {
    return MakeCollective(FindCollective("spardl"), options());
  }
};

// The payloads of vectors: accumulated gradients, or, in the eager form, the non-zero elements as
// selections.
inline Sent SentOf(const Form& form, const Vectors& vectors, std::size_t kept) {
  if (form.lazy) return Accumulated(vectors, kept);
  Sent sent{"", vectors.front().size(), kept, {}};
  for (const std::vector<float>& vector : vectors) sent.by_rank.push_back(NonZeros(vector));
  return sent;
}

// Integers up to `most`, a share `zeros` of them 0.
inline Vectors Integers(std::size_t ranks, std::size_t elements, int most, double zeros,
                        std::mt19937& random) {
  Vectors vectors(ranks, std::vector<float>(elements));
  for (auto& vector : vectors) {
    for (float& value : vector) {
      if (static_cast<double>(random() % 1000) < 1000 * zeros) continue;
      const int magnitude = 1 + static_cast<int>(random() % static_cast<unsigned>(most));
      value = static_cast<float>(random() % 2 == 0 ? magnitude : -magnitude);
    }
  }
  return vectors;
}

struct Dense {
  std::vector<float> applied;
  Vectors left;  // residuals; eager: returned elements
};

// Takes the `most` largest elements of a block out of `from`.
inline SparseVector Take(const baselines::SpardlBlocks& blocks, std::size_t block, std::size_t most,
                         bool zeros, std::vector<float>& from) {
  std::vector<std::uint32_t> order;
  for (std::size_t i = blocks.begin(block); i < blocks.end(block); ++i) {
    if (zeros || from[i] != 0) order.push_back(static_cast<std::uint32_t>(i));
  }
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return std::fabs(from[a]) > std::fabs(from[b]);
  });
  order.resize(std::min(order.size(), most));
  SparseVector taken;
  for (const std::uint32_t i : order) taken[i] = std::exchange(from[i], 0.0f);
  return taken;
}

inline Dense Reference(const Form& form, const Vectors& vectors, std::size_t kept) {
  const std::size_t ranks = vectors.size();
  const std::size_t elements = vectors.front().size();
  const baselines::SpardlBlocks blocks({.elements = elements, .kept = kept}, ranks / form.teams);
  const std::size_t places = blocks.count();
  Vectors content = vectors;
  const auto add = [](const SparseVector& sums, std::vector<float>& to) {
    for (const auto& [index, value] : sums) to[index] += value;
  };
  for (const baselines::SpardlStep& step : baselines::SpardlScatterSteps(places)) {
    for (std::size_t i = 0; i < step.blocks; ++i) {
      std::vector<SparseVector> cut(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::size_t block = (rank + step.gap + i) % places;
        cut[rank] = Take(blocks, block, blocks.kept(block), form.lazy, content[rank]);
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::size_t team = rank / places * places;
        add(cut[rank], content[team + (rank + step.gap) % places]);
      }
    }
  }
  Dense dense{std::vector<float>(elements), {}};
  std::vector<bool> is_applied(elements);
  for (std::size_t place = 0; place < places; ++place) {
    const std::size_t most = blocks.kept(place);
    std::vector<std::vector<float>> lists(form.teams, std::vector<float>(elements));
    for (std::size_t team = 0; team < form.teams; ++team) {
      const std::size_t h =
          form.doubling || most == 0 ? most : std::max<std::size_t>(1, most / form.teams);
      add(Take(blocks, place, h, form.lazy, content[team * places + place]), lists[team]);
    }
    if (!form.doubling) {
      for (std::size_t team = 1; team < form.teams; ++team) {
        for (std::size_t i = 0; i < elements; ++i) lists[0][i] += lists[team][i];
      }
      lists.resize(1);
    }
    for (std::size_t stride = 1; lists.size() > 1; stride *= 2) {
      Vectors halves;
      for (std::size_t t = 0; t < lists.size(); t += 2) {
        for (std::size_t i = 0; i < elements; ++i) lists[t][i] += lists[t + 1][i];
        halves.emplace_back(elements);
        add(Take(blocks, place, most, false, lists[t]), halves.back());
        std::vector<float>& first = content[t * stride * places + place];
        for (std::size_t i = 0; i < elements; ++i) first[i] += lists[t][i];
      }
      lists = halves;
    }
    for (const auto& [index, value] : Take(blocks, place, most, false, lists[0])) {
      dense.applied[index] = value;
      is_applied[index] = true;
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    dense.left.push_back(vectors[rank]);
    for (std::size_t i = 0; i < elements; ++i) {
      if (is_applied[i]) dense.left[rank][i] = content[rank][i];
    }
  }
  return dense;
}

}  // namespace sparfuse::testing

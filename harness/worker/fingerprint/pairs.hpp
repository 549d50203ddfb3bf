// Measures links between two ranks, one link of a node at a time.
#pragma once

#include <optional>
#include <vector>

#include "core/device/device.hpp"
#include "harness/systems/rank_pairs.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

struct PairSample {
  double start_seconds = 0;  // of a message of 8 bytes
  double gbps = 0;           // each way, both at once, of 4 MiB beyond that
};

class PairLinks {
 public:
  explicit PairLinks(const Rank& rank);
  const std::vector<std::vector<RankPair>>& phases() const noexcept { return phases_; }
  // The pair of a phase that this rank is in, if any.
  std::optional<RankPair> Own(std::size_t phase) const;
  // Once more, while the other pairs of the phase do the same; nothing where this rank is in none
  // or the clock saw no difference between the sizes. Collective.
  std::optional<PairSample> Measure(std::size_t phase);

 private:
  const Rank& rank_;
  std::vector<std::vector<RankPair>> phases_;
  Buffer<std::byte> out_, in_;
};

}  // namespace sparfuse::harness

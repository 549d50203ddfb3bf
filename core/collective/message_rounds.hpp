// Makes a round of the single messages that travel in it.
#pragma once

#include <cstdint>
#include <span>

#include "core/collective/rounds.hpp"

namespace sparfuse {

struct RankMessage {
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;
};

// Appends to `plan` the round in which these messages, one at least, travel at once, and counts
// them in plan.per_rank, which has [topology.ranks] elements. The round's link is the slowest that
// one of them takes. The reference holds until the next round is appended. Cost: O(messages +
// ranks).
Round& AddRound(std::span<const RankMessage> messages, const Topology& topology, RoundPlan& plan);

}  // namespace sparfuse

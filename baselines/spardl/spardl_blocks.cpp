// Schedules Spar-Reduce-Scatter and Bruck's all-gather within a team.
//
// Sources: M. Zhao et al., SparDL, ICDE 2024, section III (Spar-Reduce-Scatter without recursion,
//          for any number of ranks); J. Bruck et al., Efficient Algorithms for All-to-All
//          Communications in Multiport Message-Passing Systems, TPDS 8(11), 1997 (all-gather).
#include "baselines/spardl/spardl_blocks.hpp"

#include <bit>

namespace sparfuse::baselines {

SpardlBlocks::SpardlBlocks(const ExchangeShape& shape, std::size_t count)
    : elements_(shape.elements),
      count_(count),
      width_(std::max<std::size_t>(1, (shape.elements + count - 1) / count)),
      kept_(std::max<std::size_t>(
          1, width_ * shape.kept / std::max<std::size_t>(1, shape.elements))) {}

std::size_t SpardlBlocks::KeptBelow(std::size_t block) const {
  const std::size_t whole = std::min(block, elements_ / width_);
  const std::size_t rest = block > whole ? elements_ - whole * width_ : 0;
  return whole * kept_ + std::min(kept_, rest);
}

std::size_t SpardlBlocks::KeptOf(std::size_t first, std::size_t blocks) const {
  const std::size_t last = first + blocks;
  const std::size_t around = last > count_ ? KeptBelow(last - count_) : 0;
  return KeptBelow(std::min(last, count_)) - KeptBelow(first) + around;
}

std::vector<SpardlStep> SpardlScatterSteps(std::size_t ranks) {
  std::vector<SpardlStep> steps;
  if (ranks <= 1) return steps;
  // The first step folds what exceeds a power of two.
  std::size_t gap = std::bit_ceil(ranks) / 2;
  steps.push_back({gap, ranks - gap});
  while (gap > 1) {
    gap /= 2;
    steps.push_back({gap, gap});
  }
  return steps;
}

std::vector<SpardlStep> BruckSteps(std::size_t ranks) {
  std::vector<SpardlStep> steps;
  for (std::size_t gap = 1; gap < ranks; gap *= 2) {
    steps.push_back({gap, std::min(2 * gap, ranks) - gap});
  }
  return steps;
}

}  // namespace sparfuse::baselines

// Says how a setting's time divides on a machine: ratios of machines that differ much in it are of
// two questions, and no verdict joins them.
#pragma once

#include <optional>
#include <string>

#include "harness/compare/side.hpp"

namespace sparfuse::harness {

// So many times apart are two regimes.
inline constexpr double kOtherRegime = 4;

struct Regime {
  // Of the reference's step: communication that it exposes over the rest of it. None without a
  // trial that knows both.
  std::optional<double> communication;
  // Of the reference's step time over blocks: the largest over the smallest, less 1; what no
  // difference below can be seen in. None for one block.
  std::optional<double> drift;
  int ranks = 0, hosts = 0;  // hosts: 0 where the trial does not say

  // "within a node", "between nodes", "both", or "" where hosts are not known.
  std::string links() const;
  double ranks_per_host() const { return static_cast<double>(ranks) / hosts; }
};

Regime RegimeOf(const SideCell& reference);

// "" where ratios of the two can be compared, else what keeps them apart.
std::string WhyOtherRegime(const Regime& first, const Regime& second);

}  // namespace sparfuse::harness

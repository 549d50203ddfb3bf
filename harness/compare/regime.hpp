// Describes how a setting's time divides on a machine. If two machines differ much in it, their
// ratios answer two questions, and no verdict joins them.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/compare/side.hpp"

namespace sparfuse::harness {

// Two regimes differ if a share differs by this factor.
inline constexpr double kOtherRegime = 4;

// A reference that moves by more while a block is measured is worth a word.
inline constexpr double kControlMoved = 0.1;

struct Regime {
  // Of the reference's step: the exposed communication over the rest. None if no trial knows both.
  std::optional<double> communication;
  // The drift of the reference's step time over blocks: the largest over the smallest, less 1.
  // Smaller differences cannot be seen. None for one block.
  std::optional<double> drift;
  // How far the reference moved while a block was measured; 0.1 is 10 %. It is the larger of two
  // numbers: the distance of its step time from the median of blocks, either way, and the range of
  // its rounds within the block from the lower to the upper quartile. Blocks without both are left
  // out.
  std::map<int, double> moved;
  int ranks = 0, hosts = 0;  // hosts: 0 if the trial does not say
  std::string card_links;    // CardLinksOf

  // "within a node", "between nodes", "both", or "" if hosts are not known.
  std::string links() const;
  // The same with card_links: "within a node, cards by NVLink".
  std::string LinkWords() const;
  double ranks_per_host() const { return static_cast<double>(ranks) / hosts; }
};

Regime RegimeOf(const SideCell& reference);

// "" if ratios of the two can be compared, else the reason why not.
std::string WhyOtherRegime(const Regime& first, const Regime& second);

}  // namespace sparfuse::harness

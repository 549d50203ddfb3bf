// Says which ranks are on one host, and which of them speaks for it.
#pragma once

#include <string>
#include <vector>

#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Hosts are told apart by their names, and numbered in the order of their first ranks.
struct RankHosts {
  std::vector<std::string> names;          // by host
  std::vector<std::size_t> host_of;        // by rank
  std::vector<std::vector<int>> ranks_of;  // by host; the first one speaks for it

  explicit RankHosts(const std::vector<std::string>& host_by_rank);
  bool several() const noexcept { return names.size() > 1; }
  bool speaks(int rank) const { return ranks_of[host_of[Index(rank)]].front() == rank; }

 private:
  static std::size_t Index(int rank) { return static_cast<std::size_t>(rank); }
};

// Collective; equal on all ranks.
RankHosts FindHosts(const Rank& rank);

}  // namespace sparfuse::harness

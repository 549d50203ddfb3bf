// Finds the ranks on each host, and compares the clocks of a launch's hosts, so that time stamps of
// different ranks are comparable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/transport/world/clocks.hpp"
#include "harness/records/launch.hpp"
#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// Hosts are identified by their names, and numbered in the order of their first ranks.
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

class HostClocks {
 public:
  // Collective. Ranks that share rank 0's clock (one boot of one kernel, one time namespace) are
  // not compared, because they do not differ. For each other clock, one of its ranks is compared.
  // Cost: for each of these clocks 32 short messages to rank 0 and back, one clock after another.
  HostClocks(const Rank& rank, const RankHosts& hosts);

  // Compares once more. Collective.
  void Read(const Rank& rank);

  // The clocks by rank, after Read.
  std::vector<ClockLine> by_rank() const;
  // In the order of hosts; nothing if all have rank 0's clock. On rank 0.
  std::optional<LaunchClocks> Describe(const RankHosts& hosts) const;

 private:
  ClockReading Compare(const Rank& rank) const;

  std::vector<std::size_t> clock_of_;  // by rank; 0: rank 0's
  std::vector<int> compared_;          // the first rank of every other clock, in their order
  ClockReading before_;                // of this rank's clock
  std::vector<ClockLine> lines_;       // by clock; rank 0
};

}  // namespace sparfuse::harness

// Compares the clocks of a launch's hosts, so that time stamps of ranks can stand beside one
// another.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/transport/world/clocks.hpp"
#include "harness/worker/hosts/rank_hosts.hpp"

namespace sparfuse::harness {

class HostClocks {
 public:
  // Collective. Ranks that share rank 0's clock (one boot of one kernel, one time namespace) are
  // not compared: they differ by nothing. Of those that share another clock one is. Cost: of each
  // such clock 32 short messages to rank 0 and back, one clock after another.
  HostClocks(const Rank& rank, const RankHosts& hosts);

  // Compares once more. Collective.
  void Read(const Rank& rank);

  // By rank; after Read.
  std::vector<ClockLine> by_rank() const;
  // By host, as trials keep it: {"hosts", "offset_seconds" (at the second reading), "drift_ppm",
  // "drift_uncertainty_ppm", "uncertainty_seconds"}, lists in the order of hosts; null where all
  // have rank 0's clock. On rank 0.
  nlohmann::json Describe(const RankHosts& hosts) const;

 private:
  ClockReading Compare(const Rank& rank) const;

  std::vector<std::size_t> clock_of_;  // by rank; 0: rank 0's
  std::vector<int> compared_;          // the first rank of every other clock, in their order
  ClockReading before_;                // of this rank's clock
  std::vector<ClockLine> lines_;       // by clock; rank 0
};

}  // namespace sparfuse::harness

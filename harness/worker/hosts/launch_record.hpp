// Records the hosts of a launch's ranks, the resources that ranks may use there, the traffic of the
// hosts' network interfaces, and the differences of their clocks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/transport/world/clocks.hpp"
#include "harness/machine/network.hpp"
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

// Compares the clocks of a launch's hosts, so that time stamps of different ranks are comparable.
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

// One object a rank; all members are collective. Rank 0 keeps hosts.json in the directory of the
// launch's first trial; the controller takes over its keys (harness/records/launch.hpp).
class LaunchRecord {
 public:
  // Reads the facts of hosts, and writes those known so far. If ranks are on several hosts, and one
  // has fewer cores than its ranks have threads, it throws Error{kConfig} on all ranks, unless
  // kOversubscribe is set. `rank`, of the first trial, must outlive this object.
  explicit LaunchRecord(const Rank& rank);

  // Clocks as they are now.
  const HostClocks& ReadClocks();
  // Reads again and leaves all of it.
  void Finish();

 private:
  void RefuseOversubscription(const std::vector<RankBinding>& ranks) const;
  void Write() const;

  const Rank& rank_;
  RankHosts hosts_;
  HostClocks clocks_;
  std::map<std::string, InterfaceBytes> interfaces_;  // if this rank speaks for its host
  LaunchHosts record_;                                // rank 0
};

}  // namespace sparfuse::harness

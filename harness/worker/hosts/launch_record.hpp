// Records the hosts of a launch's ranks, the resources that ranks may use there, the traffic of the
// hosts' network interfaces, and the differences of their clocks.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/machine/network.hpp"
#include "harness/records/launch.hpp"
#include "harness/worker/hosts/host_clocks.hpp"

namespace sparfuse::harness {

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

#include "harness/worker/hosts/rank_hosts.hpp"

#include <algorithm>

#include "harness/machine/system.hpp"

namespace sparfuse::harness {

RankHosts::RankHosts(const std::vector<std::string>& host_by_rank) {
  for (std::size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    const auto found = std::ranges::find(names, host_by_rank[rank]);
    const auto host = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(host_by_rank[rank]);
      ranks_of.emplace_back();
    }
    host_of.push_back(host);
    ranks_of[host].push_back(static_cast<int>(rank));
  }
}

RankHosts FindHosts(const Rank& rank) {
  std::vector<std::string> names;
  for (const auto& name : GatherJson(rank, HostName())) names.push_back(name);
  return RankHosts(names);
}

}  // namespace sparfuse::harness

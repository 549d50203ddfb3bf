#include "harness/run/live/launch/placement.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "core/base/error.hpp"

namespace sparfuse::harness {

// The hostfile of a template has the scheduler's form.
std::vector<Host> HostsOf(const LaunchMethod& launch) {
  return ReadHostfile(launch.hostfile, launch.kind == LaunchMethod::Kind::kTemplate
                                           ? HostfileForm::kAny
                                           : HostfileForm::kOpenMpi);
}

int HostCount(const LaunchMethod& launch) {
  if (!launch.hostfile.empty()) return static_cast<int>(HostsOf(launch).size());
  if (launch.kind != LaunchMethod::Kind::kSrun) {
    SPARFUSE_THROW(kConfig,
                   "ranks over several hosts: expected --hostfile FILE, which lists the hosts, or "
                   "--launch srun");
  }
  CheckMayLaunch(launch);
  const char* text = std::getenv("SLURM_JOB_NUM_NODES");
  const int hosts = text == nullptr ? 0 : std::atoi(text);
  if (hosts < 1) {
    SPARFUSE_THROW(kConfig, fmt::format("SLURM_JOB_NUM_NODES={}: expected the allocation's number "
                                        "of nodes, as Slurm sets it",
                                        text == nullptr ? "" : text));
  }
  return hosts;
}

int RanksPerNode(const LaunchMethod& launch, int ranks) {
  if (!launch.hostfile.empty()) return RanksPerHost(HostsOf(launch), ranks, launch.hostfile);
  const int hosts = HostCount(launch);
  return (ranks + hosts - 1) / hosts;
}

void CheckPlacement(const std::vector<std::string>& placement, const CellConfig& config,
                    const LaunchMethod& launch) {
  for (std::size_t one = 0; one < placement.size(); ++one) {
    for (std::size_t other = 0; other < one; ++other) {
      const auto per_node = static_cast<std::size_t>(config.ranks_per_node);
      const bool same_node = one / per_node == other / per_node;
      if (same_node == (placement[one] == placement[other])) continue;
      SPARFUSE_THROW(
          kConfig,
          fmt::format(
              "{}: ranks {} and {} of {} ran on \"{}\" and \"{}\", and {} ranks a host were "
              "wanted: expected different machines; then measure again with --fresh",
              launch.hostfile.empty() ? "srun" : launch.hostfile.string(), other, one,
              config.workers, placement[other], placement[one], per_node));
    }
  }
}

}  // namespace sparfuse::harness

#include "harness/worker/hosts/host_clocks.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kRounds = 32;
constexpr int kTag = 0;

// A name that is equal for ranks with the same CLOCK_MONOTONIC.
std::string NameOfClock() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code none;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

}  // namespace

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

RankHosts FindHosts(const Rank& rank) { return RankHosts(GatherTexts(rank, HostName())); }

HostClocks::HostClocks(const Rank& rank, const RankHosts& hosts) {
  std::vector<std::string> names = GatherTexts(rank, NameOfClock());
  for (std::size_t r = 0; r < names.size(); ++r) {
    // If the clock has no name, each host counts as having its own.
    if (names[r].starts_with(' ')) names[r] = hosts.names[hosts.host_of[r]];
  }
  const RankHosts clocks(names);
  clock_of_ = clocks.host_of;
  for (const std::vector<int>& ranks : clocks.ranks_of) {
    if (ranks.front() > 0) compared_.push_back(ranks.front());
  }
  before_ = Compare(rank);
}

ClockReading HostClocks::Compare(const Rank& rank) const {
  ClockReading reading;
  if (compared_.empty()) return reading;
  const ClockSource clock = MonotonicSeconds;
  rank.loop.RunBlocking([&](Communicator& world) {
    return CompareClocks(world, compared_, kRounds, kTag, clock, reading);
  });
  return reading;
}

void HostClocks::Read(const Rank& rank) {
  lines_.assign(1, {});
  if (compared_.empty()) return;
  const ClockReading after = Compare(rank);
  std::vector<ClockLine> by_rank;
  const ClockLine own{before_, after};
  for (const auto& bytes : rank.Gather(std::as_bytes(std::span(&own, 1)))) {
    ClockLine line;
    std::memcpy(&line, bytes.data(), sizeof line);
    by_rank.push_back(line);
  }
  for (const int r : compared_) lines_.push_back(by_rank[static_cast<std::size_t>(r)]);
}

std::vector<ClockLine> HostClocks::by_rank() const {
  std::vector<ClockLine> lines;
  for (const std::size_t clock : clock_of_) lines.push_back(lines_.at(clock));
  return lines;
}

std::optional<LaunchClocks> HostClocks::Describe(const RankHosts& hosts) const {
  if (compared_.empty()) return std::nullopt;
  LaunchClocks clocks;
  clocks.hosts = hosts.names;
  for (const auto& ranks : hosts.ranks_of) {
    const ClockLine& line = lines_.at(clock_of_[static_cast<std::size_t>(ranks.front())]);
    clocks.offset_seconds.push_back(line.after.offset_seconds);
    clocks.drift_ppm.push_back(1e6 * line.drift());
    clocks.drift_uncertainty_ppm.push_back(1e6 * line.drift_uncertainty());
    clocks.uncertainty_seconds.push_back(line.uncertainty_seconds());
  }
  return clocks;
}

}  // namespace sparfuse::harness

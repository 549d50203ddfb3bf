#include "harness/worker/hosts/host_clocks.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr int kRounds = 32;
constexpr int kTag = 0;

// Equal where CLOCK_MONOTONIC is the same clock.
std::string NameOfClock() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code none;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

}  // namespace

HostClocks::HostClocks(const Rank& rank, const RankHosts& hosts) {
  std::vector<json> names;
  const std::vector<json> clock_by_rank = GatherJson(rank, NameOfClock());
  for (std::size_t r = 0; r < clock_by_rank.size(); ++r) {
    // Without its name each host has its own.
    const json name = clock_by_rank[r].get<std::string>().starts_with(' ')
                          ? json(hosts.names[hosts.host_of[r]])
                          : clock_by_rank[r];
    const auto found = std::ranges::find(names, name);
    clock_of_.push_back(static_cast<std::size_t>(found - names.begin()));
    if (found != names.end()) continue;
    if (r > 0) compared_.push_back(static_cast<int>(r));
    names.push_back(name);
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
  const auto lines =
      GatherJson(rank, {before_.at_seconds, before_.offset_seconds, before_.uncertainty_seconds,
                        after.at_seconds, after.offset_seconds, after.uncertainty_seconds});
  for (const int r : compared_) {
    const json& line = lines[static_cast<std::size_t>(r)];
    lines_.push_back({{line[0], line[1], line[2]}, {line[3], line[4], line[5]}});
  }
}

std::vector<ClockLine> HostClocks::by_rank() const {
  std::vector<ClockLine> lines;
  for (const std::size_t clock : clock_of_) lines.push_back(lines_.at(clock));
  return lines;
}

json HostClocks::Describe(const RankHosts& hosts) const {
  if (compared_.empty()) return nullptr;
  json clocks = {{"hosts", hosts.names}};
  for (const auto& ranks : hosts.ranks_of) {
    const ClockLine& line = lines_.at(clock_of_[static_cast<std::size_t>(ranks.front())]);
    clocks["offset_seconds"].push_back(line.after.offset_seconds);
    clocks["drift_ppm"].push_back(1e6 * line.drift());
    clocks["drift_uncertainty_ppm"].push_back(1e6 * line.drift_uncertainty());
    clocks["uncertainty_seconds"].push_back(line.uncertainty_seconds());
  }
  return clocks;
}

}  // namespace sparfuse::harness

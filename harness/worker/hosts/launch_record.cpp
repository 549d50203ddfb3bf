#include "harness/worker/hosts/launch_record.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/device/card.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/binding.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/launch.hpp"
#include "harness/systems/detected_node.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kRounds = 32;
constexpr int kTag = 0;

// A name that is equal for ranks with the same CLOCK_MONOTONIC.
std::string NameOfClock() {
  std::error_code none;
  return FirstLine("/proc/sys/kernel/random/boot_id") + " " +
         std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

// The place of this rank's card; "" without one.
std::string CardOfRank(const Device& device) {
  if (device.kind != DeviceKind::kCuda) return "";
  const Card card = CardOf(device.index);
  for (const GpuCard& known : ReadGpus().cards) {
    if (IsCard(known, card.uuid)) return known.bus_id;
  }
  return "cuda:" + std::to_string(card.index);
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
  const ClockLine own{before_, after};
  const auto by_rank = GatherValues(rank, std::span(&own, 1));
  for (const int r : compared_) lines_.push_back(by_rank[static_cast<std::size_t>(r)].front());
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

LaunchRecord::LaunchRecord(const Rank& rank)
    : rank_(rank), hosts_(FindHosts(rank)), clocks_(rank, hosts_) {
  RankBinding own = BindingOfThisProcess();
  own.interface = PinnedInterface();
  own.card = CardOfRank(rank.device);
  if (hosts_.speaks(rank.rank())) own.node = DescribeNode(own.interface);
  const std::vector<RankBinding> ranks = GatherRecords(rank, own);
  RefuseOversubscription(ranks);
  if (hosts_.speaks(rank.rank())) interfaces_ = ReadInterfaces();
  if (rank.rank() != 0) return;
  record_.binding = ColumnsOf(ranks);
  std::vector<Node> nodes;
  for (const auto& of_host : hosts_.ranks_of)
    nodes.push_back(ranks[static_cast<std::size_t>(of_host.front())].node.value());
  record_.nodes = CountedNodes(nodes);
  if (rank.device.kind == DeviceKind::kCuda) {
    if (const std::string hidden = WhoIsHidden(ranks); !hidden.empty()) record_.warnings = {hidden};
  }
  Write();
}

void LaunchRecord::RefuseOversubscription(const std::vector<RankBinding>& ranks) const {
  if (!hosts_.several() || std::getenv(kOversubscribe) != nullptr) return;
  const std::string what = WhatIsOversubscribed(ranks, rank_.config.threads_per_worker);
  if (what.empty()) return;
  SPARFUSE_THROW(kConfig, what + ": expected fewer ranks or threads, or --oversubscribe");
}

const HostClocks& LaunchRecord::ReadClocks() {
  clocks_.Read(rank_);
  return clocks_;
}

void LaunchRecord::Finish() {
  ReadClocks();
  HostTraffic own;
  if (hosts_.speaks(rank_.rank())) {
    own = DescribeTraffic(interfaces_, ReadInterfaces(), PinnedInterface(), hosts_.several());
  }
  const std::vector<HostTraffic> traffic = GatherRecords(rank_, own);
  if (rank_.rank() != 0) return;
  std::vector<HostTraffic> by_host;
  for (const auto& ranks : hosts_.ranks_of)
    by_host.push_back(traffic[static_cast<std::size_t>(ranks.front())]);
  record_.network = TrafficOfHosts(hosts_.names, by_host);
  record_.clocks = clocks_.Describe(hosts_);
  Write();
}

void LaunchRecord::Write() const {
  WriteFileDurably(rank_.directory / kHostRecord, ToJson(record_).dump(1) + "\n");
}

}  // namespace sparfuse::harness

#include "harness/worker/hosts/launch_record.hpp"

#include <cctype>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/device/card.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/binding.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/records/launch.hpp"
#include "harness/systems/detected_node.hpp"

namespace sparfuse::harness {
namespace {

// The place of this rank's card; "" without one.
std::string CardOfRank(const Device& device) {
  if (device.kind != DeviceKind::kCuda) return "";
  const Card card = CardOf(device.index);
  const auto same = [](const std::string& text) {
    std::string digits;
    for (const char c : text) {
      if (std::isxdigit(static_cast<unsigned char>(c)) != 0) digits += c;
    }
    return digits;
  };
  for (const GpuCard& known : ReadGpus().cards) {  // "GPU-8c3b...", with dashes
    if (known.uuid.starts_with("GPU-") && same(known.uuid.substr(4)) == card.uuid)
      return known.bus_id;
  }
  return "cuda:" + std::to_string(card.index);
}

}  // namespace

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

#include "harness/worker/hosts/launch_record.hpp"

#include <cctype>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/device/card.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/binding.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/run/live/hosts/host_record.hpp"
#include "harness/systems/recorded_node.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Where this rank's card is; null without one.
json CardOfRank(const Device& device) {
  if (device.kind != DeviceKind::kCuda) return nullptr;
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

// A list a key, in the order of ranks.
json Columns(const std::vector<json>& bindings) {
  json columns;
  for (const json& binding : bindings) {
    columns["hosts"].push_back(binding.at("host"));
    for (const char* key : {"cores", "numa", "card", "interface"})
      columns[key].push_back(binding.at(key));
  }
  return columns;
}

}  // namespace

LaunchRecord::LaunchRecord(const Rank& rank)
    : rank_(rank), hosts_(FindHosts(rank)), clocks_(rank, hosts_) {
  json own = BindingOfThisProcess();
  const std::string interface = PinnedInterface();
  own["card"] = CardOfRank(rank.device);
  own["interface"] = interface.empty() ? json() : json(interface);
  own["node"] = hosts_.speaks(rank.rank()) ? DescribeNode(interface) : json();
  const std::vector<json> bindings = GatherJson(rank, own);
  RefuseOversubscription(bindings);
  if (hosts_.speaks(rank.rank())) interfaces_ = ReadInterfaces();
  if (rank.rank() != 0) return;
  record_["binding"] = Columns(bindings);
  std::vector<json> nodes;
  for (const auto& ranks : hosts_.ranks_of)
    nodes.push_back(bindings[static_cast<std::size_t>(ranks.front())].at("node"));
  record_["nodes"] = CountedNodes(nodes);
  if (rank.device.kind == DeviceKind::kCuda) {
    if (const std::string hidden = WhoIsHidden(bindings); !hidden.empty())
      record_["warnings"] = {hidden};
  }
  Write();
}

void LaunchRecord::RefuseOversubscription(const std::vector<json>& bindings) const {
  if (!hosts_.several() || std::getenv(kOversubscribe) != nullptr) return;
  const std::string what = WhatIsOversubscribed(bindings, rank_.config.threads_per_worker);
  if (what.empty()) return;
  SPARFUSE_THROW(kConfig, what + ": expected fewer ranks or threads, or --oversubscribe");
}

const HostClocks& LaunchRecord::ReadClocks() {
  clocks_.Read(rank_);
  return clocks_;
}

void LaunchRecord::Finish() {
  ReadClocks();
  json own;
  if (hosts_.speaks(rank_.rank())) {
    own = DescribeTraffic(interfaces_, ReadInterfaces(), PinnedInterface(), hosts_.several());
  }
  const std::vector<json> traffic = GatherJson(rank_, own);
  if (rank_.rank() != 0) return;
  std::vector<json> by_host;
  for (const auto& ranks : hosts_.ranks_of)
    by_host.push_back(traffic[static_cast<std::size_t>(ranks.front())]);
  record_["network"] = TrafficOfHosts(hosts_.names, by_host);
  if (json clocks = clocks_.Describe(hosts_); !clocks.is_null()) record_["clocks"] = clocks;
  Write();
}

void LaunchRecord::Write() const {
  WriteFileDurably(rank_.directory / kHostRecord, record_.dump(1) + "\n");
}

}  // namespace sparfuse::harness

#include "harness/records/launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
RecordKeys KeysOf<RankBinding>() {
  using B = RankBinding;
  static constexpr auto kKeys = KeyTable<B>(
      Key<&B::host>({.name = "host"}), Key<&B::cores>({.name = "cores"}),
      Key<&B::numa>({.name = "numa"}), Key<&B::visible_cards>({.name = "visible_cards"}),
      Key<&B::card>({.name = "card", .empty_is_null = true}),
      Key<&B::interface>({.name = "interface", .empty_is_null = true}),
      Key<&B::node>({.name = "node"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<LaunchBinding>() {
  using B = LaunchBinding;
  static constexpr auto kKeys = KeyTable<B>(
      Key<&B::hosts>({.name = "hosts"}), Key<&B::cores>({.name = "cores"}),
      Key<&B::numa>({.name = "numa"}), Key<&B::card>({.name = "card", .empty_is_null = true}),
      Key<&B::interface>({.name = "interface", .empty_is_null = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<InterfaceBytes>() {
  using B = InterfaceBytes;
  static constexpr auto kKeys =
      KeyTable<B>(Key<&B::received>({.name = "received", .unit = "bytes"}),
                  Key<&B::sent>({.name = "sent", .unit = "bytes"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<HostTraffic>() {
  using T = HostTraffic;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::interface>({.name = "interface", .empty_is_null = true}),
                  Key<&T::bytes>({.name = "bytes"}), Key<&T::others>({.name = "others"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<LaunchNetwork>() {
  using N = LaunchNetwork;
  static constexpr auto kKeys =
      KeyTable<N>(Key<&N::interface>({.name = "interface", .empty_is_null = true}),
                  Key<&N::hosts>({.name = "hosts"}), Key<&N::bytes>({.name = "bytes"}),
                  Key<&N::others>({.name = "others"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<LaunchClocks>() {
  using C = LaunchClocks;
  static constexpr auto kKeys = KeyTable<C>(
      Key<&C::hosts>({.name = "hosts"}),
      Key<&C::offset_seconds>({.name = "offset_seconds", .unit = "seconds"}),
      Key<&C::drift_ppm>({.name = "drift_ppm", .unit = "10^-6"}),
      Key<&C::drift_uncertainty_ppm>({.name = "drift_uncertainty_ppm", .unit = "10^-6"}),
      Key<&C::uncertainty_seconds>({.name = "uncertainty_seconds", .unit = "seconds"}));
  return kKeys;
}

namespace {

template <class Record>
constexpr auto KeysOfHosts() {
  using H = LaunchHosts;
  return KeyTable<Record>(
      Key<&H::binding, Record>({.name = "binding", .optional = true}),
      Key<&H::nodes, Record>({.name = "nodes", .optional = true}),
      Key<&H::network, Record>({.name = "network", .optional = true}),
      Key<&H::clocks, Record>({.name = "clocks", .optional = true}),
      Key<&H::warnings, Record>({.name = "warnings", .leaves = Leaves::kWords, .optional = true}));
}

}  // namespace

template <>
RecordKeys KeysOf<LaunchHosts>() {
  static constexpr auto kKeys = KeysOfHosts<LaunchHosts>();
  return kKeys;
}

template <>
RecordKeys KeysOf<TrialLaunch>() {
  using L = TrialLaunch;
  static constexpr auto kKeys = Joined(
      KeysOfHosts<L>(),
      KeyTable<L>(
          Key<&L::id>({.name = "id", .leaves = Leaves::kPlace}),
          Key<&L::trials>({.name = "trials"}),
          Key<&L::start_seconds>({.name = "start_seconds", .unit = "seconds", .optional = true}),
          Key<&L::failed_on>({.name = "failed_on", .optional = true}),
          Key<&L::left_out>({.name = "left_out", .optional = true})));
  return kKeys;
}

LaunchBinding ColumnsOf(const std::vector<RankBinding>& ranks) {
  LaunchBinding columns;
  for (const RankBinding& rank : ranks) {
    columns.hosts.push_back(rank.host);
    columns.cores.push_back(rank.cores);
    columns.numa.push_back(rank.numa);
    columns.card.push_back(rank.card);
    columns.interface.push_back(rank.interface);
  }
  return columns;
}

LaunchNetwork TrafficOfHosts(const std::vector<std::string>& hosts,
                             const std::vector<HostTraffic>& traffic) {
  LaunchNetwork network{traffic.front().interface, hosts, {}, {}};
  for (const HostTraffic& host : traffic) {
    network.bytes.push_back(host.bytes);
    network.others.push_back(host.others);
  }
  return network;
}

std::vector<std::string> WarningsOf(const LaunchHosts& hosts) {
  std::vector<std::string> warnings;
  if (hosts.network) {
    const LaunchNetwork& network = *hosts.network;
    for (std::size_t host = 0; host < network.hosts.size(); ++host) {
      if (network.others[host].empty()) continue;
      warnings.push_back(
          fmt::format("{}: in addition to {}, {} had traffic during this launch: expected "
                      "--interface NAME, or no other traffic on them",
                      network.hosts[host],
                      network.interface.empty() ? "the busiest interface" : network.interface,
                      fmt::join(network.others[host], ", ")));
    }
  }
  warnings.insert(warnings.end(), hosts.warnings.begin(), hosts.warnings.end());
  return warnings;
}

json ToJson(const LaunchHosts& hosts) { return WriteRecord(hosts); }

json ToJson(const TrialLaunch& launch) { return WriteRecord(launch); }

LaunchHosts TakeHostRecord(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kHostRecord;
  LaunchHosts hosts;
  try {
    if (std::filesystem::exists(file))
      ReadRecord(ReadJsonFile(file), KeyPlace(file.native()), hosts);
  } catch (const Error&) {
    hosts = {};  // the launch failed anyway
  }
  std::error_code none;
  std::filesystem::remove(file, none);
  return hosts;
}

}  // namespace sparfuse::harness

#include "harness/machine/network.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "core/base/error.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNoticedBytes = 1 << 20;  // hosts exchange fewer bytes anyway
constexpr double kNoticedShare = 0.05;

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : EntriesOf(folder)) names.push_back(entry.filename().string());
  return names;
}

std::optional<std::uint64_t> ReadNumber(const fs::path& file) {
  std::uint64_t number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;
}

// The RDMA ports of an interface, as in "mlx5_0:1".
std::vector<std::string> RdmaPorts(const fs::path& interface) {
  std::vector<std::string> ports;
  const std::uint64_t port = ReadNumber(interface / "dev_port").value_or(0) + 1;
  for (const std::string& device : NamesIn(interface / "device" / "infiniband"))
    ports.push_back(fmt::format("{}:{}", device, port));
  return ports;
}

// Whether the interface is a bond, a bridge, a VLAN or a partition of InfiniBand. Such an interface
// may show the device of its members as its own.
bool IsMadeOfAnother(const fs::path& interface) {
  return std::ranges::any_of(NamesIn(interface), [](const std::string& name) {
    return name.starts_with("lower_") || name == "parent";
  });
}

// The bytes that an interface's ports carried past the kernel. The counters count words of four
// bytes.
std::vector<InterfaceBytes> RdmaBytes(const fs::path& interface) {
  constexpr std::uint64_t kWord = 4;
  std::vector<InterfaceBytes> ports;
  for (const std::string& port : RdmaPorts(interface)) {
    const std::size_t colon = port.find(':');
    const fs::path counters = interface / "device" / "infiniband" / port.substr(0, colon) /
                              "ports" / port.substr(colon + 1) / "counters";
    const auto received = ReadNumber(counters / "port_rcv_data");
    const auto sent = ReadNumber(counters / "port_xmit_data");
    if (received && sent) ports.push_back({kWord * *received, kWord * *sent});
  }
  return ports;
}

// Whether one of two interfaces passes on the other's traffic.
bool CountTheSame(const fs::path& folder, const std::string& one, const std::string& other) {
  std::error_code none;
  const auto linked = [&](const std::string& from, const std::string& to) {
    return fs::exists(folder / from / ("lower_" + to), none) ||
           fs::exists(folder / from / ("upper_" + to), none);
  };
  return linked(one, other) || linked(other, one);
}

std::uint64_t Sum(const InterfaceBytes& bytes) { return bytes.received + bytes.sent; }

}  // namespace

std::map<std::string, InterfaceBytes> ReadInterfaces(const fs::path& folder) {
  std::map<std::string, InterfaceBytes> interfaces;
  for (const std::string& name : NamesIn(folder)) {
    const fs::path statistics = folder / name / "statistics";
    const auto received = ReadNumber(statistics / "rx_bytes");
    const auto sent = ReadNumber(statistics / "tx_bytes");
    if (received && sent) interfaces[name] = {*received, *sent};
    if (!interfaces.contains(name) || IsMadeOfAnother(folder / name)) continue;
    // An InfiniBand port also counts the kernel's traffic of its interface.
    constexpr std::uint64_t kInfiniBand = 32;
    const bool within = ReadNumber(folder / name / "type") == kInfiniBand;
    InterfaceBytes& bytes = interfaces[name];
    for (const InterfaceBytes& port : RdmaBytes(folder / name)) {
      bytes.received =
          within ? std::max(bytes.received, port.received) : bytes.received + port.received;
      bytes.sent = within ? std::max(bytes.sent, port.sent) : bytes.sent + port.sent;
    }
  }
  return interfaces;
}

void NeedInterface(const std::string& name, const fs::path& folder) {
  const std::vector<std::string> known = NamesIn(folder);
  if (std::ranges::find(known, name) != known.end()) return;
  SPARFUSE_THROW(kConfig,
                 fmt::format("--interface {}: this host has no such network interface; expected "
                             "one of {}",
                             name, fmt::join(known, ", ")));
}

std::string PinnedInterface() {
  const char* name = std::getenv("OMPI_MCA_btl_tcp_if_include");
  return name != nullptr && ReadInterfaces().contains(name) ? name : "";
}

std::vector<std::pair<std::string, std::string>> InterfaceEnvironment(const std::string& interface,
                                                                      const fs::path& folder) {
  if (interface.empty()) return {};
  const std::vector<std::string> ports = RdmaPorts(folder / interface);
  std::vector<std::string> devices = ports;
  devices.push_back(interface);
  std::vector<std::pair<std::string, std::string>> environment = {
      {"OMPI_MCA_btl_tcp_if_include", interface},
      {"OMPI_MCA_oob_tcp_if_include", interface},
      {"NCCL_SOCKET_IFNAME", "=" + interface},  // "=": not every name that begins so
      {"GLOO_SOCKET_IFNAME", interface},
      {"UCX_NET_DEVICES", fmt::format("{}", fmt::join(devices, ","))}};
  if (!ports.empty())
    environment.emplace_back("NCCL_IB_HCA", fmt::format("={}", fmt::join(ports, ",")));
  return environment;
}

HostTraffic DescribeTraffic(const std::map<std::string, InterfaceBytes>& before,
                            const std::map<std::string, InterfaceBytes>& after,
                            const std::string& interface, bool across_hosts,
                            const fs::path& folder) {
  HostTraffic traffic{interface, {}, {}};
  for (const auto& [name, now] : after) {
    const auto then = before.find(name);
    // The interface is new since then, or its counters were reset.
    if (then == before.end() || now.received < then->second.received ||
        now.sent < then->second.sent) {
      continue;
    }
    const InterfaceBytes moved = {now.received - then->second.received,
                                  now.sent - then->second.sent};
    if (Sum(moved) > 0) traffic.bytes[name] = moved;
  }
  std::map<std::string, InterfaceBytes> carried = traffic.bytes;
  carried.erase("lo");
  std::string meant = interface;
  if (meant.empty() && !carried.empty()) {
    meant = std::ranges::max_element(carried, {}, [](const auto& each) {
              return Sum(each.second);
            })->first;
  }
  const double share =
      carried.contains(meant) ? kNoticedShare * static_cast<double>(Sum(carried[meant])) : 0;
  for (const auto& [name, moved] : carried) {
    if (!across_hosts || name == meant || CountTheSame(folder, meant, name)) continue;
    if (Sum(moved) > kNoticedBytes && static_cast<double>(Sum(moved)) > share)
      traffic.others.push_back(name);
  }
  return traffic;
}

}  // namespace sparfuse::harness

// Reads the traffic of this host's network interfaces, and names one interface to every library
// that chooses.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/launch.hpp"

namespace sparfuse::harness {

inline constexpr const char* kInterfaces = "/sys/class/net";

// The bytes of every interface since it is up, with the bytes of the RDMA ports behind it.
// Interfaces that cannot be read are left out.
std::map<std::string, InterfaceBytes> ReadInterfaces(
    const std::filesystem::path& folder = kInterfaces);

// Throws Error{kConfig} naming --interface, `name` and the interfaces of this host.
void NeedInterface(const std::string& name, const std::filesystem::path& folder = kInterfaces);

// The one interface of this host that this process was told to use by InterfaceEnvironment, or "".
std::string PinnedInterface();

// Variables that make Open MPI, NCCL, gloo and UCX use `interface` alone; "": none. If an RDMA
// device is behind it (its device/infiniband), UCX and NCCL get that port, too.
std::vector<std::pair<std::string, std::string>> InterfaceEnvironment(
    const std::string& interface, const std::filesystem::path& folder = kInterfaces);

// The bytes that the interfaces of this host carried between two readings. interface: the one asked
// for, or "", and then the busiest is taken. The others are interfaces that carried more than 1 MiB
// and more than 5 % of its bytes. There are none unless `across_hosts`, because ranks of one host
// need none. The loopback never counts, nor do interfaces that count the same bytes again: a bond
// and its members, a bridge, a VLAN.
HostTraffic DescribeTraffic(const std::map<std::string, InterfaceBytes>& before,
                            const std::map<std::string, InterfaceBytes>& after,
                            const std::string& interface, bool across_hosts,
                            const std::filesystem::path& folder = kInterfaces);

}  // namespace sparfuse::harness

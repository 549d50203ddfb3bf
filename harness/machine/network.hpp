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

// Of every interface since it is up, with what the RDMA ports behind it carried. What cannot be
// read is left out.
std::map<std::string, InterfaceBytes> ReadInterfaces(
    const std::filesystem::path& folder = kInterfaces);

// Throws Error{kConfig} naming --interface, `name` and those that there are.
void NeedInterface(const std::string& name, const std::filesystem::path& folder = kInterfaces);

// The one interface of this host that this process was told to use by InterfaceEnvironment, or "".
std::string PinnedInterface();

// Variables that make Open MPI, NCCL, gloo and UCX use `interface` and no other; "": none. Where an
// RDMA device stands behind it (its device/infiniband), UCX and NCCL get that port, too.
std::vector<std::pair<std::string, std::string>> InterfaceEnvironment(
    const std::string& interface, const std::filesystem::path& folder = kInterfaces);

// What interfaces of this host carried between two readings. interface: as asked for, or ""; then,
// for the others, the busiest stands for it. These carried more than 1 MiB and 5 % of what that one
// did; there are none unless `across_hosts`, since ranks of one host need none. Neither the
// loopback nor what counts the same bytes once more (a bond and its members, a bridge, a VLAN) is
// an other.
HostTraffic DescribeTraffic(const std::map<std::string, InterfaceBytes>& before,
                            const std::map<std::string, InterfaceBytes>& after,
                            const std::string& interface, bool across_hosts,
                            const std::filesystem::path& folder = kInterfaces);

}  // namespace sparfuse::harness

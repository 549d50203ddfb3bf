// Detects what a node of a system is made of.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"

namespace sparfuse::harness {

// In the place of whatever a node does not tell: a speed that nobody knows has no default.
inline constexpr const char* kUnknown = "unknown";

// {"processor", "cores", "memory_gib",
//  "card": [{"model", "memory_gib", "count"}, ...], by model: those of equal model and memory are
//          one entry,
//  "card_link": [{"kind", "pairs"}, ...], by kind: how many pairs of cards reach each other so, in
//          the words of GpuLink,
//  "interface": [{"name", "kind", "gbps"}, ...], by name}.
//
// Interfaces are those with a device of their own that are up: ports of InfiniBand ("mlx5_0/1", as
// NCCL_IB_HCA has them) and what /sys/class/net has ("eth0", as NCCL_SOCKET_IFNAME has them), kind
// "Ethernet", "InfiniBand" or, where the same device does RDMA over Ethernet, "RoCE"; `gbps` is
// what the driver negotiated, in 10^9 bit/s each way. Where there is none, as in a container, those
// that are made up by software count, with kind "virtual" and an unknown speed: a driver like veth
// reports a constant.
//
// system: as DescribeSystem. sys: where sysfs lies.
// Source: Documentation/ABI/testing/sysfs-class-{net,infiniband} of Linux.
nlohmann::json DetectNode(const nlohmann::json& system, const GpuReport& gpus,
                          const std::filesystem::path& sys);
// The node that this program runs on.
nlohmann::json DetectNode();

// {"kind", "gbps"} of one interface by its name in /sys/class/net, whether or not it is up, in the
// words of DetectNode. What passes on to others what it gets (a bond, a VLAN, a bridge) is of the
// first one's kind, at the speed that its own driver tells.
nlohmann::json DetectInterface(const std::string& name, const std::filesystem::path& sys);

// Where two nodes differ in what is detected.
struct NodeDifference {
  std::string pointer;           // of the value in the first, from the node: "/interface/0/gbps";
                                 // of the array where the first lacks an entry: "/card"
  nlohmann::json first, second;  // null where that node has no such entry
  bool operator==(const NodeDifference&) const = default;
};

// Cards first, then links, then the rest; empty where the nodes are equal. What the second does not
// know contradicts nothing. An entry that one lacks is one difference, of the whole entry.
std::vector<NodeDifference> DifferencesOfNodes(const nlohmann::json& first,
                                               const nlohmann::json& second);

}  // namespace sparfuse::harness

// Finds the parts of a node, for a system's file and for the trials that run on it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {

// `machine` with its cards by model and memory, the links between them by kind, and its interfaces
// by name, without the kernel.
//
// Interfaces are those with a device of their own that are up: ports of InfiniBand ("mlx5_0/1", as
// NCCL_IB_HCA has them) and what /sys/class/net has ("eth0", as NCCL_SOCKET_IFNAME has them), kind
// "Ethernet", "InfiniBand" or, where the same device does RDMA over Ethernet, "RoCE". Where there
// is none, as in a container, those that are made up by software count, with kind "virtual" and an
// unknown speed: a driver like veth reports a constant.
//
// machine: as DescribeMachine. sys: where sysfs lies.
// Source: Documentation/ABI/testing/sysfs-class-{net,infiniband} of Linux.
Node DetectNode(Node machine, const GpuReport& gpus, const std::filesystem::path& sys);
// The node that this program runs on.
Node DetectNode();

// One interface by its name in /sys/class/net, whether or not it is up, without that name. What
// passes on to others what it gets (a bond, a VLAN, a bridge) is of the first one's kind, at the
// speed that its own driver tells.
NodeInterface DetectInterface(const std::string& name, const std::filesystem::path& sys);

// A node as trials record it, without names and addresses. cores: of the node, whatever a rank may
// use of them. Its network is the interface that ranks are told to use, by its name; "": all that
// DetectNode finds, each kind and speed once.
Node DescribeNode(Node machine, int cores, const std::string& interface,
                  const std::filesystem::path& sys);
// The node that this process is on.
Node DescribeNode(const std::string& interface);

// Where two nodes differ in what is detected. Values are JSON: of any key, or a whole entry.
struct NodeDifference {
  std::string pointer;           // of the value in the first, from the node: "/interface/0/gbps";
                                 // of the array where the first lacks an entry: "/card"
  nlohmann::json first, second;  // null where that node has no such entry
  bool operator==(const NodeDifference&) const = default;
};

// Cards first, then links, then the rest; empty where the nodes are equal. What the second does not
// know contradicts nothing. An entry that one lacks is one difference, of the whole entry.
std::vector<NodeDifference> DifferencesOfNodes(const Node& first, const Node& second);

}  // namespace sparfuse::harness

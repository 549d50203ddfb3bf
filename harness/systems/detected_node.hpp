// Finds the parts of a node, for a system's file and for the trials that run on it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/machine/nvml.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {

// Adds to `machine` its cards by model and memory, the links between them by kind, and its
// interfaces by name; removes the kernel.
//
// Interfaces are those that are up and have a device of their own: ports of InfiniBand ("mlx5_0/1",
// in the form of NCCL_IB_HCA) and entries of /sys/class/net ("eth0", in the form of
// NCCL_SOCKET_IFNAME). Their kind is "Ethernet", "InfiniBand" or, if the same device does RDMA over
// Ethernet, "RoCE". If there is none, for example in a container, interfaces made by software
// count, with kind "virtual" and an unknown speed, because a driver like veth reports a constant.
//
// machine: as DescribeMachine. sys: the path of sysfs.
// Source: Documentation/ABI/testing/sysfs-class-{net,infiniband} of Linux.
Node DetectNode(Node machine, const GpuReport& gpus, const std::filesystem::path& sys);
// The node that this program runs on.
Node DetectNode();

// One interface by its name in /sys/class/net, up or not, without that name. An interface that
// forwards to others (a bond, a VLAN, a bridge) has the kind of the first of them, and the speed
// that its own driver gives.
NodeInterface DetectInterface(const std::string& name, const std::filesystem::path& sys);

// A node in the form of a trial's record, without names and addresses. cores: of the node, not only
// those that a rank may use. interface: the one that ranks are told to use, by its name, which
// becomes the node's network; "": all that DetectNode finds, each kind and speed once.
Node DescribeNode(Node machine, int cores, const std::string& interface,
                  const std::filesystem::path& sys);
// The node that this process is on.
Node DescribeNode(const std::string& interface);

// A difference between two nodes in a detected value. Values are JSON: of any key, or a whole
// entry.
struct NodeDifference {
  std::string pointer;           // of the value in the first, from the node: "/interface/0/gbps";
                                 // of the array if the first lacks an entry: "/card"
  nlohmann::json first, second;  // null if that node has no such entry
  bool operator==(const NodeDifference&) const = default;
};

// Cards first, then links, then the rest; empty if the nodes are equal. A value that the second
// does not know contradicts nothing. An entry that one lacks is one difference, of the whole entry.
std::vector<NodeDifference> DifferencesOfNodes(const Node& first, const Node& second);

}  // namespace sparfuse::harness

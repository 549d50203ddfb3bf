// Describes the nodes that a launch ran on, as trials record them, and the system that they make.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace sparfuse::harness {

// {"cpu_model", "cores", "memory_gib", "gpus": [...], "network": [{"kind", "gbps"}, ...]}, without
// names and addresses. cores: of the node, whatever a rank may use of them. network: of the
// interface that ranks are told to use, by its name; "": of all that DetectNode finds, each kind
// and speed once.
//
// system: as DescribeSystem. sys: where sysfs lies.
nlohmann::json DescribeNode(nlohmann::json system, int cores, const std::string& interface,
                            const std::filesystem::path& sys);
// The node that this process is on.
nlohmann::json DescribeNode(const std::string& interface);

// Equal nodes once, with their "count", in the order in which they come first.
nlohmann::json CountedNodes(std::span<const nlohmann::json> nodes);

// The system whose nodes these are: {"nodes": [...]}, each description once and without its count,
// so that it is the same for any number of like nodes, in any order.
nlohmann::json SystemOfNodes(std::span<const nlohmann::json> nodes);

// "Ethernet 100 Gbit/s", "InfiniBand 200 Gbit/s, Ethernet 1 Gbit/s", "virtual" of a node.
std::string NetworkLine(const nlohmann::json& node);

}  // namespace sparfuse::harness

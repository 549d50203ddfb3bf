// A node, as a trial records it and a system's file describes it, and the system that a trial's
// numbers belong to.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// Stands for what a node does not tell: a speed that nobody knows has no default.
inline constexpr const char* kUnknown = "unknown";
// In a system's file, where a person has to write.
inline constexpr const char* kChangeMe = "CHANGEME";

// Cards of equal model and memory.
struct NodeCard {
  std::string model;
  std::optional<std::int64_t> memory_gib, count = 1;
  bool operator==(const NodeCard&) const = default;
};

// The cards of a list that names the model of each card; neighbours of one model are one entry.
std::vector<NodeCard> CardsOfModels(const std::vector<std::string>& models);

// How many pairs of cards are linked in one way.
struct NodeCardLink {
  std::string kind;  // the way, as GpuLink has it (harness/machine/nvml.hpp)
  std::optional<std::int64_t> pairs;
  bool operator==(const NodeCardLink&) const = default;
};

struct NodeInterface {
  std::string name;            // "eth0", "mlx5_0/1"; "": of a trial, whose record names none
  std::string kind;            // "Ethernet", "InfiniBand", "RoCE", "virtual"; "" unknown
  std::optional<double> gbps;  // as the driver negotiated, in 10^9 bit/s each way
  bool operator==(const NodeInterface&) const = default;
};

// In trials "cpu_model", "cores", "memory_gib", "gpus" (a model a card), and either "kernel", of
// the machine whose cores are those that this process may use, or "network", of a launch's node.
struct Node {
  std::string processor;
  std::optional<std::int64_t> cores, memory_gib;
  std::vector<NodeCard> cards;
  std::vector<NodeCardLink> card_links;
  std::optional<std::vector<NodeInterface>> interfaces;  // nothing: nobody asked
  std::string kernel;                                    // of the operating system
  std::optional<std::int64_t> count;                     // of nodes that are exactly so
  bool operator==(const Node&) const = default;

  std::size_t CardCount() const;  // those of which a number is known
};

// A [[node]] of a system's file: "processor", "cores", "memory_gib" and the tables "card",
// "card_link" and "interface".
struct DescribedNode : Node {};
// The node without its count and its kernel, which a file does not say of a kind of nodes.
DescribedNode PartsOf(Node node);

nlohmann::json ToJson(const Node& node);
nlohmann::json ToJson(const DescribedNode& node);
Node NodeOf(const nlohmann::json& stored, std::string_view whole = "node");
std::vector<Node> NodesIn(const nlohmann::json& list);

// What a trial's numbers belong to. The hash of its JSON is the trial's system_hash.
struct System {
  std::optional<Node> machine = {};  // this program's host, or
  std::vector<Node> nodes = {};      // those of a launch, each kind once

  // Of modelled trials: the profile's. Machine or nodes, if any, are those that it was measured on.
  std::string cluster = {}, profile_hash = {};
  // "imported" and the like if the numbers were not measured; name and source of imported ones.
  std::string kind = {}, name = {}, source = {};

  bool operator==(const System&) const = default;
  bool is_known() const { return *this != System(); }
};

nlohmann::json ToJson(const System& system);  // null where it is not known
std::string HashOf(const System& system);
System SystemOf(const nlohmann::json& stored, std::string_view whole = "system");

// Equal nodes once, with their count, in the order in which they come first.
std::vector<Node> CountedNodes(std::span<const Node> nodes);

// The system whose nodes these are: each once and without its count, so that it is the same for any
// number of like nodes, in any order.
System SystemOfNodes(std::span<const Node> nodes);

// "Ethernet 100 Gbit/s", "InfiniBand 200 Gbit/s, Ethernet 1 Gbit/s", "virtual" of a node.
std::string NetworkLine(const Node& node);

}  // namespace sparfuse::harness

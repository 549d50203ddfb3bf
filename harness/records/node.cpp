#include "harness/records/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "harness/files/canonical.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {

constexpr Range kCount{1, 1'000'000}, kMemoryGib{0, 1e9}, kGbps{1e-9, 1e9};

// The model of each card, in the form of trials, which omits the memory.
struct ModelsOfCards : Form<std::vector<NodeCard>> {
  static json Write(const std::vector<NodeCard>& cards, const KeyInfo&, WrittenFor) {
    json models = json::array();
    for (const NodeCard& card : cards) {
      for (std::int64_t i = 0; i < card.count.value_or(1); ++i) models.push_back(card.model);
    }
    return models;
  }
  static void Read(const json& from, const KeyInfo& info, const KeyPlace& place,
                   std::vector<NodeCard>& cards) {
    std::vector<std::string> models;
    Form<std::vector<std::string>>::Read(from, info, place, models);
    cards = CardsOfModels(models);
  }
};

}  // namespace

template <>
RecordKeys KeysOf<NodeCard>() {
  using C = NodeCard;
  static constexpr auto kKeys = KeyTable<C>(
      Key<&C::model>({.name = "model", .none = kUnknown}),
      Key<&C::memory_gib>({.name = "memory_gib", .range = kMemoryGib, .none = kUnknown}),
      Key<&C::count>({.name = "count", .range = kCount, .none = kUnknown}));
  return kKeys;
}

template <>
RecordKeys KeysOf<NodeCardLink>() {
  using L = NodeCardLink;
  static constexpr auto kKeys =
      KeyTable<L>(Key<&L::kind>({.name = "kind", .none = kUnknown}),
                  Key<&L::pairs>({.name = "pairs", .range = kCount, .none = kUnknown}));
  return kKeys;
}

template <>
RecordKeys KeysOf<NodeInterface>() {
  using I = NodeInterface;
  static constexpr auto kKeys =
      KeyTable<I>(Key<&I::name>({.name = "name", .optional = true}),
                  Key<&I::kind>({.name = "kind", .none = kUnknown}),
                  Key<&I::gbps>({.name = "gbps", .range = kGbps, .none = kUnknown}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Node>() {
  static constexpr auto kKeys =
      KeyTable<Node>(Key<&Node::processor>({.name = "cpu_model", .later = true}),
                     Key<&Node::cores>({.name = "cores", .later = true}),
                     Key<&Node::memory_gib>({.name = "memory_gib", .later = true}),
                     Key<&Node::cards, Node, ModelsOfCards>(
                         {.name = "gpus", .meaning = "the model of each card", .later = true}),
                     Key<&Node::kernel>({.name = "kernel", .optional = true}),
                     Key<&Node::interfaces>({.name = "network", .optional = true}),
                     Key<&Node::count>({.name = "count", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<DescribedNode>() {
  using N = DescribedNode;
  static constexpr auto kKeys = KeyTable<N>(
      Key<&N::count, N>({.name = "count",
                         .range = kCount,
                         .meaning = "number of nodes that equal this one",
                         .optional = true,
                         .none = kChangeMe}),
      Key<&N::processor, N>({.name = "processor", .none = kUnknown}),
      Key<&N::cores, N>({.name = "cores", .range = kCount, .none = kUnknown}),
      Key<&N::memory_gib, N>({.name = "memory_gib", .range = kMemoryGib, .none = kUnknown}),
      Key<&N::cards, N>({.name = "card", .later = true}),
      Key<&N::card_links, N>({.name = "card_link", .later = true}),
      Key<&N::interfaces, N>({.name = "interface", .later = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<System>() {
  using S = System;
  static constexpr auto kKeys = KeyTable<S>(
      Key<&S::cluster>({.name = "cluster", .optional = true}),
      Key<&S::profile_hash>({.name = "profile_hash", .leaves = Leaves::kHash, .optional = true}),
      Key<&S::machine>({.name = "machine", .optional = true}),
      Key<&S::nodes>({.name = "nodes", .optional = true}),
      Key<&S::kind>({.name = "kind", .optional = true}),
      Key<&S::name>({.name = "name", .optional = true}),
      Key<&S::source>({.name = "source", .leaves = Leaves::kCitation, .optional = true}));
  return kKeys;
}

std::vector<NodeCard> CardsOfModels(const std::vector<std::string>& models) {
  std::vector<NodeCard> cards;
  for (const std::string& model : models) {
    if (!cards.empty() && cards.back().model == model) {
      ++*cards.back().count;
    } else {
      cards.push_back({model, std::nullopt, 1});
    }
  }
  return cards;
}

std::size_t Node::CardCount() const {
  std::size_t all = 0;
  for (const NodeCard& card : cards) all += static_cast<std::size_t>(card.count.value_or(0));
  return all;
}

DescribedNode PartsOf(Node node) {
  node.count.reset();
  node.kernel.clear();
  if (!node.interfaces) node.interfaces.emplace();
  return {std::move(node)};
}

json ToJson(const Node& node) { return WriteRecord(node); }

json ToJson(const DescribedNode& node) { return WriteRecord(node); }

Node NodeOf(const json& stored, std::string_view whole) { return RecordOf<Node>(stored, whole); }

std::vector<Node> NodesIn(const json& list) {
  std::vector<Node> nodes;
  for (const json& node : list) nodes.push_back(NodeOf(node));
  return nodes;
}

// The keys of a machine stand among the system's own keys. A profile's are in "machine", whether it
// is one node or several.
json ToJson(const System& system) {
  if (!system.is_known()) return nullptr;
  json made = WriteRecord(system);
  if (system.cluster.empty()) {
    if (system.machine) {
      made.erase("machine");
      made.update(ToJson(*system.machine));
    }
  } else if (!system.nodes.empty()) {
    made["machine"] = {{"nodes", made["nodes"]}};
    made.erase("nodes");
  }
  return made;
}

std::string HashOf(const System& system) { return ContentHash(ToJson(system)); }

System SystemOf(const json& stored, std::string_view whole) {
  System system;
  if (stored.is_null()) return system;
  const KeyPlace place(whole);
  if (!stored.is_object()) place.Expected(stored, "an object");
  if (stored.contains("cpu_model")) {
    system.machine = NodeOf(stored, whole);
    return system;
  }
  json own = stored;
  const auto machine = own.find("machine");
  if (machine != own.end() && machine->is_object() && machine->contains("nodes")) {
    own["nodes"] = json((*machine)["nodes"]);
    own.erase("machine");
  }
  ReadRecord(own, place, system);
  return system;
}

std::vector<Node> CountedNodes(std::span<const Node> nodes) {
  std::vector<Node> counted;
  for (Node node : nodes) {
    node.count = 1;
    const auto found = std::ranges::find_if(counted, [&](Node known) {
      known.count = 1;
      return known == node;
    });
    if (found == counted.end()) {
      counted.push_back(std::move(node));
    } else {
      ++*found->count;
    }
  }
  return counted;
}

System SystemOfNodes(std::span<const Node> nodes) {
  System system;
  for (Node node : nodes) {
    node.count.reset();
    if (std::ranges::find(system.nodes, node) == system.nodes.end())
      system.nodes.push_back(std::move(node));
  }
  std::ranges::sort(system.nodes, std::less<>(), [](const Node& node) { return ToJson(node); });
  return system;
}

std::string NetworkLine(const Node& node) {
  std::string line;
  for (const NodeInterface& each : node.interfaces.value_or(std::vector<NodeInterface>())) {
    line += fmt::format("{}{}", line.empty() ? "" : ", ", each.kind.empty() ? kUnknown : each.kind);
    if (each.gbps) line += fmt::format(" {:g} Gbit/s", *each.gbps);
  }
  return line;
}

}  // namespace sparfuse::harness

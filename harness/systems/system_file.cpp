#include "harness/systems/system_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/records/record.hpp"
#include "harness/systems/detected_node.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Converts "/node/1/interface/0/gbps" to "node[1].interface[0].gbps".
std::string Path(const std::string& pointer) {
  std::string path;
  for (std::size_t at = 0; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string part = pointer.substr(at + 1, end - at - 1);
    if (std::isdigit(static_cast<unsigned char>(part.front())) != 0) {
      path += "[" + part + "]";
    } else {
      path += (path.empty() ? "" : ".") + part;
    }
    at = end;
  }
  return path;
}

// The content of a system's file beside its nodes.
struct Head {
  std::string title;
};
struct Network {
  std::string kind;
  std::optional<double> gbps;
  std::string topology;
};

}  // namespace

template <>
RecordKeys KeysOf<Head>() {
  static constexpr auto kKeys = KeyTable<Head>(Key<&Head::title>(
      {.name = "title", .meaning = "its usual name, and its place", .none = kChangeMe}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Network>() {
  static constexpr auto kKeys = KeyTable<Network>(
      Key<&Network::kind>({.name = "kind",
                           .meaning = "the network between nodes (\"InfiniBand\", \"RoCE\", "
                                      "\"Ethernet\"); for one node \"none\", and no further key",
                           .none = kChangeMe}),
      Key<&Network::gbps>(
          {.name = "gbps",
           .range = {1e-9, 1e9},
           .meaning = "the highest rate from a node to another, each way, in 10^9 bit/s",
           .none = kChangeMe}),
      Key<&Network::topology>(
          {.name = "topology",
           .meaning = "the path between two nodes (\"one switch\", \"fat tree, 2:1\")",
           .none = kChangeMe}));
  return kKeys;
}

namespace {

bool IsAsked(const KeyInfo& key) { return std::string_view(key.none) == kChangeMe; }

// The keys of a network. If the system has one node, only the key that says so.
RecordKeys NetworkKeys(bool none) {
  return KeysOf<Network>().first(none ? 1 : KeysOf<Network>().size());
}

// Checks that every key of `keys` is present and valid, and that only keys of `tables` are beside
// them. Later keys are tables, which may be missing.
void CheckTable(const TomlFile& file, const std::string& pointer, const std::string& what,
                RecordKeys keys, std::vector<std::string> tables = {}) {
  for (const RecordKey& key : keys) tables.emplace_back(key.name);
  file.CheckKeys(pointer, what, tables);
  for (const RecordKey& key : keys) {
    if (key.later) continue;
    const std::string place = pointer + "/" + key.name;
    const json* value = file.Find(place);
    if (value == nullptr) {
      file.Fail(pointer, fmt::format("{}: the key \"{}\" is missing", what, key.name));
    }
    const char* open = IsAsked(key) ? kChangeMe : kUnknown;
    if (*value == open) continue;
    if (*value == kChangeMe)
      file.FailValue(place, fmt::format("the detected value, or \"{}\"", open));
    const std::string wrong = key.WhatIsWrong(*value);
    if (!wrong.empty()) file.FailValue(place, fmt::format("{}, or \"{}\"", wrong, open));
  }
}

// The number of entries of an array of tables; 0 if there is no such key.
std::size_t CheckedSize(const TomlFile& file, const std::string& pointer) {
  const json* value = file.Find(pointer);
  if (value == nullptr) return 0;
  if (!value->is_array()) file.FailValue(pointer, "an array of tables");
  return value->size();
}

void CheckEntries(const TomlFile& file, const std::string& node, const char* array,
                  RecordKeys keys) {
  const std::string pointer = fmt::format("{}/{}", node, array);
  const std::size_t entries = CheckedSize(file, pointer);
  for (std::size_t i = 0; i < entries; ++i) {
    CheckTable(file, fmt::format("{}/{}", pointer, i), fmt::format("[[node.{}]]", array), keys);
  }
}

std::string WordsOf(const json& value) {
  if (!value.is_object()) return Shown(value);
  std::string text;
  for (const auto& [key, each] : value.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, Shown(each));
  return text;
}

std::string Line(const std::string& key, const json& value, const std::string& comment = "") {
  const std::string text =
      value.is_number() ? fmt::format("{:.15g}", value.get<double>()) : Shown(value);
  const std::string line = fmt::format("{} = {}", key, text);
  return comment.empty() ? line + "\n" : fmt::format("{:24}  # {}\n", line, comment);
}

std::string LineOfAsked(const KeyInfo& key) { return Line(key.name, kChangeMe, key.meaning); }

template <class Entry>
std::string EntriesText(const char* array, const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) {
    text += fmt::format("\n[[node.{}]]\n", array);
    const json values = WriteRecord(entry);
    for (const KeyInfo& key : KeysOf<Entry>()) text += Line(key.name, values.at(key.name));
  }
  return text;
}

}  // namespace

fs::path NamedFile(const fs::path& folder, std::string_view what, const std::string& name,
                   std::string_view ending) {
  const bool good =
      !name.empty() && name.front() != '.' && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) || c == '.' || c == '_' || c == '-';
      });
  if (!good) {
    SPARFUSE_THROW(kConfig, fmt::format("{} name \"{}\": expected letters, digits, '.', '_' and "
                                        "'-', the first not '.'",
                                        what, name));
  }
  return folder / fmt::format("{}{}", name, ending);
}

fs::path SystemFile(const fs::path& folder, const std::string& name) {
  return NamedFile(folder, "system", name, ".toml");
}

std::string NodeText(const Node& node) {
  std::string text = "\n[[node]]\n";
  const json parts = ToJson(PartsOf(node));
  for (const KeyInfo& key : KeysOf<DescribedNode>()) {
    if (!key.later) text += IsAsked(key) ? LineOfAsked(key) : Line(key.name, parts.at(key.name));
  }
  return text + EntriesText("card", node.cards) + EntriesText("card_link", node.card_links) +
         EntriesText("interface", node.interfaces.value_or(std::vector<NodeInterface>()));
}

std::string NewSystemText(const std::string& name, const Node& node) {
  std::string text = fmt::format(
      "# {0}, begun by `sparfuse system init {0}`. Replace each {1} by the value, which only "
      "you\n# know. Then run `sparfuse system check {0}` on each node. On a node that differs from "
      "this\n# one, the same `init` adds it. \"{2}\": it could not be detected; write it if you "
      "know it.\n",
      name, kChangeMe, kUnknown);
  for (const KeyInfo& key : KeysOf<Head>()) text += LineOfAsked(key);
  text += "\n[network]\n";
  for (const KeyInfo& key : KeysOf<Network>()) text += LineOfAsked(key);
  return text + NodeText(node);
}

std::string TextOf(const SystemProblem& problem) {
  return fmt::format("{}: {} = {}: expected {}", problem.where, problem.key,
                     problem.value.is_null() ? "nothing" : WordsOf(problem.value),
                     problem.expected);
}

SystemDescription::SystemDescription(TomlFile file) : file_(std::move(file)) {
  Check();
  for (const json& each : file_.root().at("node")) {
    DescribedNode node;
    ReadRecord(each, KeyPlace("node"), node);
    nodes_.push_back(std::move(node));
  }
}

void SystemDescription::Check() const {
  CheckTable(file_, "", "a system", KeysOf<Head>(), {"network", "node"});
  if (file_.Find("/network") == nullptr) file_.Fail("", "the table [network] is missing");
  CheckTable(file_, "/network", HasNoNetwork() ? "[network] of kind \"none\"" : "[network]",
             NetworkKeys(HasNoNetwork()));
  const std::size_t nodes = CheckedSize(file_, "/node");
  if (nodes == 0) file_.Fail("", "there is no [[node]]: expected at least one");
  for (std::size_t i = 0; i < nodes; ++i) {
    const std::string node = fmt::format("/node/{}", i);
    CheckTable(file_, node, "[[node]]", KeysOf<DescribedNode>());
    CheckEntries(file_, node, "card", KeysOf<NodeCard>());
    CheckEntries(file_, node, "card_link", KeysOf<NodeCardLink>());
    CheckEntries(file_, node, "interface", KeysOf<NodeInterface>());
  }
}

SystemProblem SystemDescription::Problem(const std::string& pointer, std::string expected) const {
  const json* value = file_.Find(pointer);
  return {file_.Where(pointer), Path(pointer), value == nullptr ? json() : *value,
          std::move(expected)};
}

bool SystemDescription::HasNoNetwork() const {
  const json* kind = file_.Find("/network/kind");
  return kind != nullptr && *kind == "none";
}

bool SystemDescription::IsOpen(const std::string& pointer) const {
  return *file_.Find(pointer) == kChangeMe;
}

int SystemDescription::Find(const Node& node) const {
  const auto found = std::ranges::find_if(
      nodes_, [&](const Node& each) { return DifferencesOfNodes(each, node).empty(); });
  return found == nodes_.end() ? -1 : static_cast<int>(found - nodes_.begin());
}

std::int64_t SystemDescription::NodeCount() const {
  std::int64_t count = 0;
  for (const Node& node : nodes_) count += node.count.value();
  return count;
}

std::vector<SystemProblem> SystemDescription::Contradictions() const {
  std::vector<SystemProblem> problems;
  const auto ask = [&](const std::string& pointer, RecordKeys keys) {
    for (const KeyInfo& key : keys) {
      const std::string place = pointer + "/" + key.name;
      if (IsAsked(key) && IsOpen(place)) problems.push_back(Problem(place, key.meaning));
    }
  };
  ask("", KeysOf<Head>());
  ask("/network", NetworkKeys(HasNoNetwork()));
  bool counted = true;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const std::string pointer = fmt::format("/node/{}", i);
    ask(pointer, KeysOf<DescribedNode>());
    counted = counted && nodes_[i].count;
    const Node parts = PartsOf(nodes_[i]);
    for (std::size_t before = 0; before < i; ++before) {
      if (PartsOf(nodes_[before]) != parts) continue;
      problems.push_back(Problem(
          pointer + "/count",
          fmt::format("nodes that differ from node[{}]: equal nodes belong to its count", before)));
      break;
    }
    // If a link is faster than everything in a node, at least one of the numbers is wrong.
    double gbps = 0;
    bool known = !parts.interfaces->empty();
    for (const NodeInterface& interface : *parts.interfaces) {
      known = known && interface.gbps;
      gbps += interface.gbps.value_or(0);
    }
    if (known && !HasNoNetwork() && !IsOpen("/network/gbps") &&
        *file_.Find("/network/gbps") > gbps) {
      problems.push_back(
          Problem("/network/gbps",
                  fmt::format("{:g} at most, the sum of the interfaces of node[{}]", gbps, i)));
    }
  }
  if (!counted || IsOpen("/network/kind")) return problems;
  if (HasNoNetwork() != (NodeCount() == 1)) {
    problems.push_back(Problem("/network/kind",
                               NodeCount() == 1
                                   ? "\"none\", as there is one node"
                                   : fmt::format("a network, as there are {} nodes", NodeCount())));
  }
  return problems;
}

std::vector<SystemProblem> SystemDescription::ContradictionsWith(const Node& node) const {
  std::vector<NodeDifference> fewest;
  std::size_t nearest = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto differences = DifferencesOfNodes(nodes_[i], node);
    if (i > 0 && differences.size() >= fewest.size()) continue;
    fewest = std::move(differences);
    nearest = i;
  }
  std::vector<SystemProblem> problems;
  for (const NodeDifference& each : fewest) {
    SystemProblem problem = Problem(fmt::format("/node/{}{}", nearest, each.pointer), "");
    problem.value = each.first;
    problem.expected = each.second.is_null() ? "no value, as none is detected here"
                                             : WordsOf(each.second) + ", as detected here";
    problems.push_back(std::move(problem));
  }
  return problems;
}

std::string SystemDescription::Summary() const {
  std::int64_t cards = 0;
  std::string kinds;
  for (const Node& node : nodes_) {
    kinds += fmt::format("{}{}", kinds.empty() ? "" : " + ", node.count.value());
    cards += node.count.value() * static_cast<std::int64_t>(node.CardCount());
  }
  return fmt::format(
      "{} node(s){}, {} card(s)", NodeCount(),
      nodes_.size() > 1 ? fmt::format(" of {} kinds ({})", nodes_.size(), kinds) : "", cards);
}

std::string SystemDescription::Hash() const {
  const auto sort = [](json& list) {
    std::sort(list.begin(), list.end(),
              [](const json& a, const json& b) { return CanonicalJson(a) < CanonicalJson(b); });
  };
  json sorted = json::array();
  for (const Node& each : nodes_) {
    DescribedNode node = PartsOf(each);
    for (NodeInterface& interface : *node.interfaces) interface.name.clear();
    node.count = each.count;
    json parts = ToJson(node);
    for (const char* array : {"card", "card_link", "interface"}) sort(parts.at(array));
    sorted.push_back(std::move(parts));
  }
  sort(sorted);
  return ContentHash({{"network", file_.root().at("network")}, {"nodes", sorted}});
}

}  // namespace sparfuse::harness

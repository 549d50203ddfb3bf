#include "harness/systems/system_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "harness/files/canonical.hpp"
#include "harness/systems/detected_node.hpp"
#include "harness/systems/system_keys.hpp"

namespace sparfuse::harness {
namespace {

using namespace system_keys;
using nlohmann::json;

// "node[1].interface[0].gbps" of "/node/1/interface/0/gbps".
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

// Every key of `keys` is there, none beside them and `tables`, all as they must be.
void CheckTable(const TomlFile& file, const std::string& pointer, const std::string& what,
                std::span<const Key> keys, std::span<const std::string> tables = {}) {
  std::vector<std::string> known(tables.begin(), tables.end());
  for (const Key& key : keys) known.emplace_back(key.name);
  file.CheckKeys(pointer, what, known);
  for (const Key& key : keys) {
    const std::string place = pointer + "/" + key.name;
    const json* value = file.Find(place);
    if (value == nullptr) {
      file.Fail(pointer, fmt::format("{}: the key \"{}\" is missing", what, key.name));
    }
    const char* open = key.origin == Origin::kAsked ? kChangeMe : kUnknown;
    if (*value == open) continue;
    if (*value == kChangeMe)
      file.FailValue(place, fmt::format("what is detected, or \"{}\"", open));
    if (!key.range) {
      file.String(pointer, key.name, "");
      continue;
    }
    const std::string wrong = key.integer ? WhatIsWrongWithInteger(*value, *key.range)
                                          : WhatIsWrongWithNumber(*value, *key.range);
    if (!wrong.empty()) file.FailValue(place, fmt::format("{}, or \"{}\"", wrong, open));
  }
}

// The entries of an array of tables; none where there is no such key.
std::size_t CheckedSize(const TomlFile& file, const std::string& pointer) {
  const json* value = file.Find(pointer);
  if (value == nullptr) return 0;
  if (!value->is_array()) file.FailValue(pointer, "an array of tables");
  return value->size();
}

// A node of a file as DetectNode would give it: with all arrays, where a file leaves out empty
// ones.
json DetectedPartsOf(json node) {
  node.erase("count");
  for (const Entries& each : kEntries) node.emplace(each.name, json::array());
  return node;
}

std::string WordsOf(const json& value) {
  if (!value.is_object()) return Shown(value);
  std::string text;
  for (const auto& [key, each] : value.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, Shown(each));
  return text;
}

}  // namespace

std::string TextOf(const SystemProblem& problem) {
  return fmt::format("{}: {} = {}: expected {}", problem.where, problem.key,
                     problem.value.is_null() ? "nothing" : WordsOf(problem.value),
                     problem.expected);
}

SystemDescription::SystemDescription(TomlFile file) : file_(std::move(file)) { Check(); }

void SystemDescription::Check() const {
  const std::string tables[] = {"network", "node"};
  CheckTable(file_, "", "a system", kSystemKeys, tables);
  if (file_.Find("/network") == nullptr) file_.Fail("", "the table [network] is missing");
  if (HasNoNetwork()) {
    CheckTable(file_, "/network", "[network] of kind \"none\"", NoNetworkKeys());
  } else {
    CheckTable(file_, "/network", "[network]", kNetworkKeys);
  }
  const std::size_t nodes = CheckedSize(file_, "/node");
  if (nodes == 0) file_.Fail("", "there is no [[node]]: expected one at least");
  std::vector<std::string> arrays;
  for (const Entries& each : kEntries) arrays.emplace_back(each.name);
  for (std::size_t i = 0; i < nodes; ++i) {
    const std::string node = fmt::format("/node/{}", i);
    CheckTable(file_, node, "[[node]]", kNodeKeys, arrays);
    for (const Entries& each : kEntries) {
      const std::string array = fmt::format("{}/{}", node, each.name);
      const std::size_t entries = CheckedSize(file_, array);
      for (std::size_t j = 0; j < entries; ++j) {
        CheckTable(file_, fmt::format("{}/{}", array, j), fmt::format("[[node.{}]]", each.name),
                   each.keys);
      }
    }
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

int SystemDescription::Find(const json& node) const {
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    if (DifferencesOfNodes(DetectedPartsOf(nodes()[i]), node).empty()) return static_cast<int>(i);
  }
  return -1;
}

std::int64_t SystemDescription::NodeCount() const {
  std::int64_t count = 0;
  for (const json& node : nodes()) count += node.at("count").get<std::int64_t>();
  return count;
}

std::vector<SystemProblem> SystemDescription::Contradictions() const {
  std::vector<SystemProblem> problems;
  const auto ask = [&](const std::string& pointer, std::span<const Key> keys) {
    for (const Key& key : keys) {
      const std::string place = pointer + "/" + key.name;
      if (key.origin == Origin::kAsked && IsOpen(place))
        problems.push_back(Problem(place, key.expected));
    }
  };
  ask("", kSystemKeys);
  ask("/network", HasNoNetwork() ? NoNetworkKeys() : kNetworkKeys);
  bool counted = true;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    const std::string pointer = fmt::format("/node/{}", i);
    ask(pointer, kNodeKeys);
    counted = counted && !IsOpen(pointer + "/count");
    const json parts = DetectedPartsOf(nodes()[i]);
    for (std::size_t before = 0; before < i; ++before) {
      if (DetectedPartsOf(nodes()[before]) != parts) continue;
      problems.push_back(Problem(pointer + "/count",
                                 fmt::format("nodes unlike node[{}]: those equal to it belong to "
                                             "its count",
                                             before)));
      break;
    }
    // A link faster than all that a node has: at least one of the numbers is wrong.
    double gbps = 0;
    bool known = !parts.at("interface").empty();
    for (const json& interface : parts.at("interface")) {
      known = known && interface.at("gbps").is_number();
      if (known) gbps += interface.at("gbps").get<double>();
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

std::vector<SystemProblem> SystemDescription::ContradictionsWith(const json& node) const {
  std::vector<NodeDifference> fewest;
  std::size_t nearest = 0;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    auto differences = DifferencesOfNodes(DetectedPartsOf(nodes()[i]), node);
    if (i > 0 && differences.size() >= fewest.size()) continue;
    fewest = std::move(differences);
    nearest = i;
  }
  std::vector<SystemProblem> problems;
  for (const NodeDifference& each : fewest) {
    SystemProblem problem = Problem(fmt::format("/node/{}{}", nearest, each.pointer), "");
    problem.value = each.first;
    problem.expected = each.second.is_null() ? "what is detected here, where there is none"
                                             : WordsOf(each.second) + ", as detected here";
    problems.push_back(std::move(problem));
  }
  return problems;
}

std::string SystemDescription::Summary() const {
  std::int64_t cards = 0;
  std::string kinds;
  for (const json& node : nodes()) {
    const auto count = node.at("count").get<std::int64_t>();
    kinds += fmt::format("{}{}", kinds.empty() ? "" : " + ", count);
    for (const json& card : node.value("card", json::array()))
      if (card.at("count").is_number()) cards += count * card.at("count").get<std::int64_t>();
  }
  return fmt::format(
      "{} node(s){}, {} card(s)", NodeCount(),
      nodes().size() > 1 ? fmt::format(" of {} kinds ({})", nodes().size(), kinds) : "", cards);
}

std::string SystemDescription::Hash() const {
  const auto sort = [](json& list) {
    std::sort(list.begin(), list.end(),
              [](const json& a, const json& b) { return CanonicalJson(a) < CanonicalJson(b); });
  };
  json sorted = json::array();
  for (const json& each : nodes()) {
    json node = DetectedPartsOf(each);
    node["count"] = each.at("count");
    for (json& interface : node.at("interface")) interface.erase("name");
    for (const Entries& array : kEntries) sort(node.at(array.name));
    sorted.push_back(std::move(node));
  }
  sort(sorted);
  return ContentHash({{"network", file_.root().at("network")}, {"nodes", sorted}});
}

}  // namespace sparfuse::harness

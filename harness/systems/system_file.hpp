// Describes a system, the nodes that run jobs together, in a TOML file of results/systems: the
// facts that `sparfuse system init` detects, and the facts that it asks for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/files/toml_file.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {

// FOLDER/NAME and `ending`. what: the kind of thing that people name, for errors. Throws
// Error{kConfig} for an invalid name: letters, digits, '.', '_' and '-' are allowed, and the first
// must not be '.'.
std::filesystem::path NamedFile(const std::filesystem::path& folder, std::string_view what,
                                const std::string& name, std::string_view ending);
// FOLDER/NAME.toml. Throws likewise.
std::filesystem::path SystemFile(const std::filesystem::path& folder, const std::string& name);

// The text of a file of one node, as DetectNode gives it.
std::string NewSystemText(const std::string& name, const Node& node);
// A [[node]] of such a file. It may be the last entry of any file.
std::string NodeText(const Node& node);

// A mistake in a value.
struct SystemProblem {
  std::string where;     // "file:line"
  std::string key;       // "node[1].interface[0].gbps"
  nlohmann::json value;  // as the file has it, of any key; null: there is none
  std::string expected;
};
// "file:line: key = value: expected ..."
std::string TextOf(const SystemProblem& problem);

class SystemDescription {
 public:
  // Throws Error{kConfig} with file and line for an unknown or missing key, and for a value of
  // another type or out of range. kChangeMe is accepted for each value that people write, kUnknown
  // for each that is detected.
  explicit SystemDescription(TomlFile file);

  // Each with its count, unless that is still to be written.
  const std::vector<Node>& nodes() const { return nodes_; }
  // The position of the first node without differences (DifferencesOfNodes); -1: none.
  int Find(const Node& node) const;

  // Values that are still to be written, values that contradict each other, and separate entries
  // for equal nodes.
  std::vector<SystemProblem> Contradictions() const;
  // Nothing if one of the nodes equals this one, else the differences from the most similar one.
  std::vector<SystemProblem> ContradictionsWith(const Node& node) const;

  // "4 node(s) of 2 kinds (3 + 1), 32 card(s)". Precondition: nothing is left to be written.
  std::string Summary() const;
  // Of the content without title and names of interfaces, independent of the order of nodes and
  // their parts: equal for equal systems with different names.
  std::string Hash() const;

 private:
  SystemProblem Problem(const std::string& pointer, std::string expected) const;
  bool HasNoNetwork() const;
  bool IsOpen(const std::string& pointer) const;
  std::int64_t NodeCount() const;
  void Check() const;

  TomlFile file_;
  std::vector<Node> nodes_;
};

}  // namespace sparfuse::harness

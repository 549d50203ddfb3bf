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

// FOLDER/NAME and `ending`, of a `what` that people name. Throws Error{kConfig} for a name that is
// none: letters, digits, '.', '_', '-', the first not '.'.
std::filesystem::path NamedFile(const std::filesystem::path& folder, std::string_view what,
                                const std::string& name, std::string_view ending);
// FOLDER/NAME.toml. Throws likewise.
std::filesystem::path SystemFile(const std::filesystem::path& folder, const std::string& name);

// The text of a file of one node, as DetectNode gives it.
std::string NewSystemText(const std::string& name, const Node& node);
// A [[node]] of such a file. It may come last in any.
std::string NodeText(const Node& node);

// What is wrong with a value.
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
  // Throws Error{kConfig} with file and line for an unknown or missing key and a value of another
  // type or out of range. kChangeMe passes for any value that is asked for, kUnknown for any that
  // is detected.
  explicit SystemDescription(TomlFile file);

  // Each with its count, unless that is still to be written.
  const std::vector<Node>& nodes() const { return nodes_; }
  // The position of the first node of which DifferencesOfNodes finds nothing; -1: of none.
  int Find(const Node& node) const;

  // Values that are still to be written, those that contradict each other, and nodes that are
  // equal and yet apart.
  std::vector<SystemProblem> Contradictions() const;
  // Nothing where one of the nodes is as this one; else what differs from the one with the fewest
  // differences.
  std::vector<SystemProblem> ContradictionsWith(const Node& node) const;

  // "4 node(s) of 2 kinds (3 + 1), 32 card(s)". Precondition: nothing is left to be written.
  std::string Summary() const;
  // Of the content without title and names of interfaces, in whatever order nodes and their parts
  // stand: equal for equal systems, whatever they are called.
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

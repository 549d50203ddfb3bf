// Writes what `sparfuse system init` writes.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "core/base/error.hpp"
#include "harness/systems/detected_node.hpp"
#include "harness/systems/system_file.hpp"
#include "harness/systems/system_keys.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using namespace system_keys;
using nlohmann::json;

std::string Line(const std::string& key, const json& value, const std::string& comment = "") {
  const std::string text =
      value.is_number() ? fmt::format("{:.15g}", value.get<double>()) : Shown(value);
  const std::string line = fmt::format("{} = {}", key, text);
  return comment.empty() ? line + "\n" : fmt::format("{:24}  # {}\n", line, comment);
}

std::string LineOfAsked(const Key& key) { return Line(key.name, kChangeMe, key.expected); }

}  // namespace

fs::path SystemFile(const fs::path& folder, const std::string& name) {
  const bool good =
      !name.empty() && name.front() != '.' && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) || c == '.' || c == '_' || c == '-';
      });
  if (!good) {
    SPARFUSE_THROW(kConfig, fmt::format("system name \"{}\": expected letters, digits, '.', '_' "
                                        "and '-', the first not '.'",
                                        name));
  }
  return folder / (name + ".toml");
}

std::string NodeText(const json& node) {
  std::string text = "\n[[node]]\n" + LineOfAsked(kNodeKeys[0]);
  for (const Key& key : std::span(kNodeKeys).subspan(1)) text += Line(key.name, node.at(key.name));
  for (const Entries& each : kEntries) {
    for (const json& entry : node.at(each.name)) {
      text += fmt::format("\n[[node.{}]]\n", each.name);
      for (const Key& key : each.keys) text += Line(key.name, entry.at(key.name));
    }
  }
  return text;
}

std::string NewSystemText(const std::string& name, const json& node) {
  std::string text = fmt::format(
      "# {0}, begun by `sparfuse system init {0}`. Write what only you know in the place of\n"
      "# {1}, then `sparfuse system check {0}` on each node. A node unlike this one adds itself:\n"
      "# the same `init` there. \"{2}\": it was not to be found out; write it where you know it.\n",
      name, kChangeMe, kUnknown);
  for (const Key& key : kSystemKeys) text += LineOfAsked(key);
  text += "\n[network]\n";
  for (const Key& key : kNetworkKeys) text += LineOfAsked(key);
  return text + NodeText(node);
}

}  // namespace sparfuse::harness

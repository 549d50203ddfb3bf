#include "harness/catalog/installed_parts.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kAsk = R"(
import importlib.metadata, importlib.util, json
found = set()
for distribution in importlib.metadata.distributions():
    for entry in distribution.entry_points:
        if entry.group != "sparfuse.parts":
            continue
        module, _, name = entry.value.partition(":")
        try:
            spec = importlib.util.find_spec(module)
        except ImportError:
            spec = None
        known = spec is not None and spec.origin is not None and name.isidentifier()
        part = f"python:{spec.origin}:{name}" if known else ""
        package = f"{distribution.metadata['Name']} {distribution.version}"
        found.add((entry.name, part, entry.value, package))
print(json.dumps(sorted(found)))
)";

std::vector<InstalledPart> Ask(const std::filesystem::path& python) {
  bool ok = false;
  const std::string said =
      CommandOutput(ShellQuoted(python.string()) + " -c " + ShellQuoted(kAsk) + " 2>/dev/null", ok);
  const json entries = json::parse(ok ? said : "[]", nullptr, false);
  std::vector<InstalledPart> parts;
  if (!entries.is_array()) return parts;
  for (const json& entry : entries) parts.push_back({entry[0], entry[1], entry[2], entry[3]});
  return parts;
}

}  // namespace

const std::vector<InstalledPart>& InstalledParts(const std::filesystem::path& python) {
  static std::map<std::filesystem::path, std::vector<InstalledPart>> known;
  const auto found = known.find(python);
  return found != known.end() ? found->second : known[python] = Ask(python);
}

}  // namespace sparfuse::harness

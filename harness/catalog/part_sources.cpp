#include "harness/catalog/part_sources.hpp"

#include "baselines/registry.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/files/canonical.hpp"

namespace sparfuse::harness {
namespace {

std::string_view FirstWord(std::string_view name) {
  return name.substr(0, name.find_first_of("-@"));
}

std::string_view HashOf(std::string_view folder) {
  for (const FolderHash& each : FolderHashes()) {
    if (each.folder == folder) return each.hash;
  }
  return "";
}

// Of a folder and all beneath it.
std::string HashOfAll(std::string_view top) {
  std::string all;
  for (const FolderHash& each : FolderHashes()) {
    if (each.folder.starts_with(top)) all += each.hash;
  }
  return ShortHash(all);
}

std::string HashOfMethod(std::string_view name) {
  for (const EmbeddedMethod& file : MethodFiles()) {
    if (file.path.ends_with("/" + std::string(name) + ".toml")) {
      return ShortHash(file.toml);
    }
  }
  return "";
}

}  // namespace

std::string SourceFolderOf(std::string_view kind, std::string_view name) {
  const bool sparsifier = kind == "sparsifier";
  const std::size_t at = name.find('@');
  if (sparsifier && at != std::string_view::npos && name.substr(at) != "@paper") {
    return "core/sparsify/published";
  }
  for (const FolderHash& each : FolderHashes()) {
    const std::string_view folder = each.folder;
    const std::size_t slash = folder.rfind('/');
    const std::string_view room = folder.substr(0, slash);
    const bool may_be =
        sparsifier ? room == "core/sparsify" : room == "core" || room == "baselines";
    if (may_be && FirstWord(folder.substr(slash + 1)) == FirstWord(name)) {
      return std::string(folder);
    }
  }
  return sparsifier             ? "core/sparsify"
         : kind == "planner"    ? "core/fusion"
         : kind == "collective" ? "core/collective"
                                : "core/engine";
}

nlohmann::json SourcesOf(const CellConfig& config) {
  nlohmann::json sources = {{"workload:" + config.workload, HashOfAll("workloads")}};
  const auto add = [&](const std::string& kind, const std::string& name) {
    // The content of a Python file is in its name.
    if (IsPythonSparsifier(name) || name == "none") return;
    sources[kind + ":" + name] = HashOf(SourceFolderOf(kind, name));
  };
  for (const std::string& name : config.sparsifiers) add("sparsifier", name);
  if (config.is_profile()) return sources;
  add("sparsifier", config.sparsifier);
  add("strategy", config.method_options.strategy);
  add("planner", config.method_options.planner);
  if (const auto name = config.method_options.quantizer())
    sources["quantizer:" + *name] = HashOf("core/quantize");
  add("collective", config.method_options.collective);
  if (config.method_content.empty())
    sources["method:" + config.method] = HashOfMethod(config.method);
  const std::string engine = config.modelled() ? "core/engine/model" : "core/engine/live";
  sources[config.modelled() ? "engine:model" : "engine:live"] = HashOf(engine);
  return sources;
}

}  // namespace sparfuse::harness

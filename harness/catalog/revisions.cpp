#include "harness/catalog/revisions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "baselines/registry.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/toml_file.hpp"

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

// The hash of a folder and everything under it.
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
  // Strategies with windows, whatever else they do, and strategies with delayed updates.
  if (kind == "strategy" && (name.ends_with("local-steps") || name.starts_with("delayed")))
    return "core/localsteps";
  return sparsifier             ? "core/sparsify"
         : kind == "planner"    ? "core/fusion"
         : kind == "collective" ? "core/collective"
                                : "core/engine";
}

std::map<std::string, std::string> SourcesOf(const CellConfig& config) {
  std::map<std::string, std::string> sources = {
      {"workload:" + config.workload, HashOfAll("workloads")}};
  const auto add = [&](const std::string& kind, const std::string& name) {
    // An outside part's name contains the hash of its file.
    if (IsOutsidePart(name) || name == "none") return;
    sources[kind + ":" + name] = HashOf(SourceFolderOf(kind, name));
  };
  for (const std::string& name : config.sparsifiers) add("sparsifier", name);
  if (config.is_profile()) return sources;
  add("sparsifier", config.sparsifier);
  add("strategy", config.method_options.strategy);
  add("planner", config.method_options.planner);
  if (const auto name = config.method_options.quantizer(); name && !IsOutsidePart(*name))
    sources["quantizer:" + *name] = HashOf("core/coding/quantizers");
  add("collective", config.method_options.collective);
  if (config.method_content.empty())
    sources["method:" + config.method] = HashOfMethod(config.method);
  const std::string engine = config.modelled() ? "core/engine/model" : "core/engine/live";
  sources[config.modelled() ? "engine:model" : "engine:live"] = HashOf(engine);
  return sources;
}

std::map<std::string, std::int64_t> RevisionsOf(const Catalog& catalog, const CellConfig& config) {
  std::map<std::string, std::int64_t> revisions;
  // With accumulation the model counted the computation of one micro-step before.
  revisions[config.modelled() ? "engine:model" : "engine:live"] =
      config.modelled() ? kModelEngineRevision + (config.accumulation > 1 ? 1 : 0)
                        : kLiveEngineRevision;
  // An outside part's name contains the hash of its file.
  const auto add = [&](const auto& entries, const std::string& what, const std::string& name) {
    revisions[what + ":" + name] =
        IsOutsidePart(name) ? kOutsidePartRevision : NeedEntry(entries, what, name).revision;
  };
  const auto add_sparsifier = [&](const std::string& name) {
    add(catalog.sparsifiers, "sparsifier", name);
  };
  // A table's name contains the hash of its content.
  if (workloads::IsTable(config.workload)) {
    revisions["workload:" + config.workload] = kModelTableRevision;
  } else {
    add(catalog.workloads, "workload", config.workload);
  }
  if (config.is_profile()) {
    revisions["profile"] = kProfileRevision;
    for (const auto& name : config.sparsifiers) add_sparsifier(name);
    return revisions;
  }
  // The configuration contains the content of a method's file outside the tree.
  if (config.method_content.empty()) add(catalog.methods, "method", config.method);
  add(catalog.strategies, "strategy", config.method_options.strategy);
  add(catalog.planners, "planner", config.method_options.planner);
  add(catalog.collectives, "collective", config.method_options.collective);
  if (const auto name = config.method_options.quantizer()) {
    const bool blocks =
        std::ranges::count(BlockQuantizers(), *name, &QuantizerDescriptor::name) > 0;
    add(blocks ? BlockQuantizers() : Quantizers(), "quantizer", *name);
  }
  if (config.sparsifier != "none") add_sparsifier(config.sparsifier);
  return revisions;
}

std::string WhatDiffers(const nlohmann::json& from, const nlohmann::json& to) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  for (const auto& [key, value] : to.items()) {
    if (!from.contains(key)) {
      add(fmt::format("{} (none) -> {}", key, Shown(value)));
    } else if (from[key] != value) {
      if (value.is_object() && from[key].is_object()) {
        add(fmt::format("{}: {}", key, WhatDiffers(from[key], value)));
      } else {
        add(fmt::format("{} {} -> {}", key, Shown(from[key]), Shown(value)));
      }
    }
  }
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) add(fmt::format("{} {} -> (none)", key, Shown(value)));
  }
  return text;
}

}  // namespace sparfuse::harness

#include "harness/catalog/revisions.hpp"

#include <fmt/format.h>

#include "core/quantize/quantizer.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/catalog/tables/model_table_file.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

nlohmann::json RevisionsOf(const Catalog& catalog, const CellConfig& config) {
  nlohmann::json revisions;
  revisions[config.modelled() ? "engine:model" : "engine:live"] =
      config.modelled() ? kModelEngineRevision : kLiveEngineRevision;
  const auto add = [&](const auto& entries, const std::string& what, const std::string& name) {
    revisions[what + ":" + name] = NeedEntry(entries, what, name).revision;
  };
  const auto add_sparsifier = [&](const std::string& name) {
    if (!IsPythonSparsifier(name)) return add(catalog.sparsifiers, "sparsifier", name);
    revisions["sparsifier:" + name] = kPythonSparsifierRevision;
  };
  // The content of a table is part of its name.
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
  // The content of a method's file outside the tree is part of the configuration.
  if (config.method_content.empty()) add(catalog.methods, "method", config.method);
  add(catalog.strategies, "strategy", config.method_options.strategy);
  add(catalog.planners, "planner", config.method_options.planner);
  add(catalog.collectives, "collective", config.method_options.collective);
  if (const auto name = config.method_options.quantizer())
    revisions["quantizer:" + *name] = FindQuantizer(*name).revision;
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

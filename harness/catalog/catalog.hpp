// What experiment files may name: the registries of core, baselines and workloads joined in one
// value, so that everything below works on what it is given.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/catalog/method_file.hpp"

namespace sparfuse::harness {

// Raised when results of live or modelled trials may change for a reason that no part owns.
inline constexpr int kLiveEngineRevision = 2;
inline constexpr int kModelEngineRevision = 2;
inline constexpr int kProfileRevision = 3;  // of what profile trials measure

struct CatalogPart {
  std::string name, summary, source;
  int revision = 1;
  std::string deviations;
  std::vector<OptionSpec> options;
};

struct CatalogStrategy : CatalogPart {
  bool sparse = false;      // some of its units are sparsified
  bool ahead = false;       // it selects from tensors before they are fused
  bool from_fused = false;  // it selects from fused buffers: every tensor is sparsified
};

struct CatalogPlanner : CatalogPart {
  bool ahead_only = false;  // for strategies that sparsify ahead
};

struct CatalogCollective : CatalogPart {
  bool sparse = false;  // takes payloads of unequal indices and counts
  bool native = false;  // the backend's own: measured mode, over `transports` only
  std::vector<std::string> transports;
};

struct CatalogSparsifier : CatalogPart {
  bool on_device = false;  // has kernels for devices; else selects on the host, copies included
};

struct CatalogWorkload : CatalogPart {
  std::string family, kind_of_data;
  std::string small;         // where data is made up: a workload of the family that has real data
  std::string unit, metric;  // what throughput counts; what evaluation yields
  bool higher_is_better = true;
  int batch_per_worker = 1;
  std::vector<OptionSpec> recipe;  // how it is trained
  struct Convergence {             // defaults of trials of that kind
    int steps = 1;
    int evaluate_every = 1;
    double target = 0;
  } convergence;
};

struct Catalog {
  std::vector<Method> methods;
  std::vector<CatalogStrategy> strategies;
  std::vector<CatalogPlanner> planners;
  std::vector<CatalogSparsifier> sparsifiers;
  std::vector<CatalogCollective> collectives;
  std::vector<CatalogWorkload> workloads;
};

// The registries that this program was built with, each method checked against the parts it names.
// Throws Error{kConfig} naming the method.toml that does not fit.
Catalog BuiltInCatalog();

// What a method is made of in one trial: {"strategy", "strategy_options", "planner",
// "planner_options", "collective"}, from the method's file, its parts' defaults and `given`: a flat
// table whose keys are options of the strategy or of the planner, these groups' names, or, where
// payloads are sent, those of SendingOptions(). The latter are in the result only where they are
// not their defaults, so that what was measured before they existed keeps its identity. Throws
// Error{kConfig} naming method, key, value and the nearest known option.
nlohmann::json ResolveMethodOptions(const Catalog& catalog, const Method& method,
                                    const nlohmann::json& given);

// Throws Error{kConfig} where the method's parts do not exist or do not fit together.
void CheckMethod(const Catalog& catalog, const Method& method);

template <class Entry>
std::vector<std::string> Names(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return names;
}

// The entry of that name, or null.
template <class Entry>
const Entry* FindEntry(const std::vector<Entry>& entries, std::string_view name) {
  for (const auto& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// Throws Error{kConfig}: `unknown method "okopk"; did you mean "oktopk"? (sparfuse list methods)`.
template <class Entry>
const Entry& NeedEntry(const std::vector<Entry>& entries, std::string_view what,
                       std::string_view name) {
  if (const Entry* entry = FindEntry(entries, name)) return *entry;
  SPARFUSE_THROW(kConfig, "unknown " + std::string(what) + " \"" + std::string(name) + "\"" +
                              Suggestion(name, Names(entries)) + " (sparfuse list " +
                              std::string(what) + "s)");
}

}  // namespace sparfuse::harness

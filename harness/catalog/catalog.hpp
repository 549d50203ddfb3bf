// Joins the names that experiment files may use, the registries of core, baselines and workloads,
// in one value that is passed down.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/plugin/plugin.hpp"
#include "harness/catalog/method_file.hpp"
#include "harness/records/cell_config.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// Raised when results of live or modelled trials may change for a reason that no part owns.
inline constexpr int kLiveEngineRevision = 2;
inline constexpr int kModelEngineRevision = 8;
inline constexpr int kProfileRevision = 5;  // of the measurements of profile trials

struct Catalog {
  std::vector<Method> methods;
  std::span<const StrategyDescriptor> strategies;
  std::span<const PlannerDescriptor> planners;
  std::span<const SparsifierDescriptor> sparsifiers;
  std::span<const CollectiveDescriptor> collectives;
  std::span<const workloads::WorkloadDescriptor> workloads;
  std::filesystem::path own_methods = {};  // a folder of the user's with methods' files, or ""
  // Folders with NAME.toml: the file of a method, part = "python:FILE.py:Class", or, from a plugin,
  // library = "FILE.so".
  std::vector<std::filesystem::path> plugins = {};
  // The Python whose packages may name parts, or "".
  std::filesystem::path python = {};
};

// The registries that this program was built with. Each method is checked against the parts it
// names. Throws Error{kConfig} naming the file of a method that does not fit.
Catalog BuiltInCatalog();

// The composition of a method in one trial, from the method's file, the defaults of its parts, and
// `given`. `given` is a flat table. Its keys are options of the strategy, planner or collective;
// the groups "strategy_options", "planner_options" and "collective_options"; SendingOptions() if
// payloads are sent; "collective"; or "plan". It is JSON, as files give it, with keys and types
// still unchecked. Throws Error{kConfig} naming method, key, value and the nearest known option.
MethodChoice ResolveMethodOptions(const Catalog& catalog, const Method& method,
                                  const nlohmann::json& given);

// Throws Error{kConfig} if the method's parts do not exist or do not fit together.
void CheckMethod(const Catalog& catalog, const Method& method);

// The method file that `given` names. `given` is a method of an experiment in `folder`, or of a
// command line. It names a file if it is a path that ends in .toml, or if no method of the catalog
// has the name and a file in own_methods or plugins does. "": it names none. A path that does not
// exist from `folder` is looked for in these folders, too.
std::filesystem::path OutsideMethodFile(const Catalog& catalog, const std::string& given,
                                        const std::filesystem::path& folder);

// The part that `name`, of a file in `folder`, means. It may be a part from outside, with an
// absolute path: `name` itself, or the one named by NAME.toml in one of the catalog's plugins or in
// an installed Python package. Else it is `name`. Throws Error{kConfig} naming both places if two
// have it, or one of them and this program.
std::string FoundPart(const Catalog& catalog, const std::string& kind, const std::string& name,
                      const std::filesystem::path& folder);

// Adds the folders of the environment's SPARFUSE_PATH to the catalog's plugins.
inline constexpr const char* kPluginsVariable = "SPARFUSE_PATH";
void AddPluginsOfEnvironment(Catalog& catalog);

// The plugins that NAME.toml of the catalog's folders name, opened; each with that file.
struct NamedPlugin {
  std::filesystem::path file;
  const PluginParts* parts;
};
std::vector<NamedPlugin> PluginsOf(const Catalog& catalog);

// A name that NAME.toml of the catalog's folders or an installed Python package gives to a part.
struct NamedPart {
  std::string name;
  std::string
      part;  // as an experiment would write it: "python:FILE.py:Class", "library:FILE.so:NAME"
  std::string place;  // the file, or the package and its version
};
// Runs no part. Throws Error{kConfig} naming the file and the wrong key.
std::vector<NamedPart> NamedParts(const Catalog& catalog);

// The files of methods that can be found by name, in the order of OutsideMethodFile's search.
std::vector<std::filesystem::path> OutsideMethodFiles(const Catalog& catalog);

struct OutsideMethod {
  Method method;
  std::string content;  // the head of the file's hash: part of the identity of its cells
};
// The method of a file outside the tree, checked like the methods of the tree. A sparsifier that is
// written in Python gets an absolute path; the file gives the path from its own folder. Throws
// Error{kConfig} naming the file and the mistake, also if the catalog has a method of this name.
OutsideMethod ReadOutsideMethod(const Catalog& catalog, const std::filesystem::path& path);

// A workload's options without its recipe, which states how it is trained.
std::vector<OptionSpec> OptionsWithoutRecipe(const workloads::WorkloadDescriptor& workload);
std::vector<OptionSpec> RecipeOf(const workloads::WorkloadDescriptor& workload);

template <class Entries>
std::vector<std::string> Names(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.emplace_back(entry.name);
  return names;
}

// The entry of that name, or null.
template <class Entries>
const auto* FindEntry(const Entries& entries, std::string_view name) {
  const auto found = std::ranges::find_if(
      entries, [&](const auto& entry) { return std::string_view(entry.name) == name; });
  return found == entries.end() ? nullptr : &*found;
}

// The noun as `sparfuse list` has it: "methods", "strategies".
inline std::string Plural(std::string_view noun) {
  if (!noun.ends_with('y')) return std::string(noun) + "s";
  return std::string(noun.substr(0, noun.size() - 1)) + "ies";
}

// Throws Error{kConfig}: `unknown method "okopk"; did you mean "oktopk"? (sparfuse list methods)`.
template <class Entries>
const auto& NeedEntry(const Entries& entries, std::string_view what, std::string_view name) {
  if (const auto* entry = FindEntry(entries, name)) return *entry;
  SPARFUSE_THROW(kConfig, "unknown " + std::string(what) + " \"" + std::string(name) + "\"" +
                              Suggestion(name, Names(entries)) + " (sparfuse list " + Plural(what) +
                              ")");
}

}  // namespace sparfuse::harness

#include "harness/catalog/catalog.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "baselines/composition.hpp"
#include "baselines/plugin_library.hpp"
#include "core/fusion/plan.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/record.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The shared library that a plugin's file names.
std::optional<std::string> LibraryOf(const TomlFile& file) {
  const json* library = file.Find("/library");
  if (library == nullptr) return std::nullopt;
  if (!library->is_string()) file.FailValue("/library", "\"FILE.so\"");
  return library->get<std::string>();
}

// The parts that `file` gives this name; none if it is a method's file.
std::vector<std::string> PartsOfFile(const TomlFile& file, const std::string& name) {
  std::vector<std::string> parts;
  const json* part = file.Find("/part");
  if (part != nullptr && !part->is_string()) file.FailValue("/part", "\"python:FILE.py:Class\"");
  if (part != nullptr) parts.push_back(part->get<std::string>());
  if (const auto library = LibraryOf(file)) {
    parts.push_back(fmt::format("{}{}:{}", kLibraryPrefix, *library, name));
  }
  return parts;
}

// The files NAME.toml of a folder, in a fixed order; empty if there is no folder.
std::set<std::filesystem::path> TomlFilesOf(const std::filesystem::path& folder) {
  std::set<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    if (entry.path().extension() == ".toml") files.insert(entry.path());
  }
  return files;
}

bool IsGroup(const std::string& key) {
  return key == "strategy_options" || key == "planner_options" || key == "collective_options";
}

// The options of `specs`: from the method's file, overridden by the group of `given`, and then by
// the keys that `given` names alone.
Options Resolve(const std::string& owner, std::span<const OptionSpec> specs, const Options& of_file,
                const json& given, const char* group, const json& alone) {
  json merged = OptionsToJson(of_file);
  if (const auto found = given.find(group); found != given.end()) merged.update(*found);
  merged.update(alone);
  return ResolveOptions(owner, specs, OptionsFromJson(owner, merged));
}

// The options of the planner "given" for { units = [3, 8, 66] } or { bytes = [...] }.
json GivenUnits(const json& plan) {
  const bool one =
      plan.is_object() && plan.size() == 1 && (plan.contains("units") || plan.contains("bytes"));
  const json sizes = one ? plan.front() : json();
  const bool good =
      sizes.is_array() && !sizes.empty() && std::ranges::all_of(sizes, [](const json& size) {
        return size.is_number_integer() && size.get<std::int64_t>() > 0;
      });
  if (!good) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("plan = {}: expected {{ units = [...] }}, numbers of tensors "
                               "in ready order, or {{ bytes = [...] }}, their dense bytes: "
                               "integers of at least 1",
                               plan.dump()));
  }
  json options;
  options[plan.begin().key()] =
      fmt::format("{}", fmt::join(sizes.get<std::vector<std::int64_t>>(), ","));
  return options;
}

bool IsOfRecipe(const OptionSpec& option) {
  static const auto recipe = workloads::RecipeOptions(workloads::Recipe{});
  return std::ranges::find(recipe, option.name, &OptionSpec::name) != recipe.end();
}

// The method's parts that may come from outside, by kind.
std::vector<std::pair<const char*, std::string*>> PartsOf(Method& method) {
  return {{"strategy", &method.strategy},
          {"planner", &method.planner},
          {"sparsifier", &method.sparsifier},
          {"feedback", &method.feedback},
          {"collective", &method.collective}};
}

// The entry, or an outside part from a file. `name` becomes its name in cells.
template <class Entries, class Descriptor>
const Descriptor& NeedPart(const Catalog& catalog, const Entries& entries, const char* kind,
                           std::string& name, const Descriptor& (*find)(std::string_view)) {
  name = FoundPart(catalog, kind, name, "");
  if (!IsOutsidePart(name)) return NeedEntry(entries, kind, name);
  name = OutsidePartName(kind, name, "");
  return find(name);
}

bool IsBuiltIn(std::string_view kind, std::string_view name) {
  return name == "none" || name == "indexed" ||
         (kind == "strategy"     ? FindEntry(Strategies(), name) != nullptr
          : kind == "planner"    ? FindEntry(Planners(), name) != nullptr
          : kind == "collective" ? FindEntry(Collectives(), name) != nullptr
          : kind == "feedback"   ? FindEntry(Feedbacks(), name) != nullptr
          : kind == "quantizer"  ? FindEntry(Quantizers(), name) != nullptr
                                 : FindEntry(Sparsifiers(), name) != nullptr);
}

// A method's file gives outside parts relative to its folder. They get absolute paths.
Method CheckedMethod(const Catalog& catalog, const std::filesystem::path& path,
                     std::string_view text) {
  Method method = ParseMethodFile(path.string(), text);
  try {
    for (const auto& [kind, part] : PartsOf(method))
      *part = FoundPart(catalog, kind, *part, path.parent_path());
    if (const auto quantizer = method.sending.find("payload_dense");
        quantizer != method.sending.end()) {
      auto* const name = std::get_if<std::string>(&quantizer->second);
      if (name != nullptr) *name = FoundPart(catalog, "quantizer", *name, path.parent_path());
    }
    CheckMethod(catalog, method);
  } catch (const Error& error) {
    throw Error(error.kind(), path.string() + ": " + error.what());
  }
  return method;
}

// A part that an installed Python package names: an entry point of the group `sparfuse.parts`.
struct InstalledPart {
  std::string name;
  std::string part;     // "python:FILE.py:Class", or "" if the entry point names no class
  std::string value;    // of the entry point
  std::string package;  // "mypackage 1.0"
};

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

// Asks `python` the first time, which takes a fifth of a second. Empty if Python does not start.
const std::vector<InstalledPart>& InstalledParts(const std::filesystem::path& python) {
  static std::map<std::filesystem::path, std::vector<InstalledPart>> known;
  const auto found = known.find(python);
  return found != known.end() ? found->second : known[python] = Ask(python);
}

}  // namespace

Catalog BuiltInCatalog() {
  Catalog catalog{
      {}, Strategies(), Planners(), Sparsifiers(), Collectives(), workloads::Workloads()};
  for (const auto& file : MethodFiles()) {
    catalog.methods.push_back(CheckedMethod(catalog, std::string(file.path), file.toml));
  }
  return catalog;
}

MethodChoice ResolveMethodOptions(const Catalog& catalog, const Method& method, const json& given) {
  MethodChoice choice;
  choice.strategy = method.strategy;
  choice.planner = given.contains("plan") ? std::string(kGivenPlanner) : method.planner;
  choice.collective = method.collective;
  const auto take_name = [&](const char* key, std::string& name) {
    const auto own = given.find(key);
    if (own != given.end() && own->is_string()) name = own->get<std::string>();
  };
  const auto& strategy =
      NeedPart(catalog, catalog.strategies, "strategy", choice.strategy, &FindStrategy);
  const bool own_planner = !given.contains("plan") && !given.contains("planner");
  take_name("planner", choice.planner);
  const auto& planner =
      NeedPart(catalog, catalog.planners, "planner", choice.planner, &FindPlanner);
  take_name("collective", choice.collective);
  const bool own_collective = choice.collective == method.collective;
  const auto& collective =
      NeedPart(catalog, catalog.collectives, "collective", choice.collective, &FindCollective);
  const MethodOptions takes{strategy.options, planner.options, collective.options,
                            SendingOptions()};
  using enum MethodOptions::Owner;
  const json none = json::object();
  std::map<MethodOptions::Owner, json> alone = {
      {kStrategy, none}, {kPlanner, none}, {kCollective, none}, {kSending, none}};
  for (const auto& [key, value] : given.items()) {
    if (IsGroup(key) && value.is_object()) continue;
    if ((key == "collective" || key == "planner") && value.is_string()) continue;
    if (key == "plan") {
      alone[kPlanner].update(GivenUnits(value));
      continue;
    }
    const auto owner = takes.OwnerOf(key, method.name);
    if (!owner) {
      std::vector<std::string> known = takes.Names();
      known.insert(known.end(), {"collective", "planner", "plan"});
      SPARFUSE_THROW(kConfig, fmt::format("method {}: unknown option \"{}\" = {}{}", method.name,
                                          key, value.dump(), Suggestion(key, known)));
    }
    alone[*owner][key] = value;
  }
  choice.strategy_options =
      Resolve(fmt::format("strategy {} of method {}", strategy.name, method.name), strategy.options,
              method.strategy_options, given, "strategy_options", alone[kStrategy]);
  // The options in the method's file apply to its own planner and collective only.
  choice.planner_options = Resolve(
      fmt::format("planner {} of method {}", planner.name, method.name), planner.options,
      own_planner ? method.planner_options : Options{}, given, "planner_options", alone[kPlanner]);
  choice.collective_options =
      Resolve(fmt::format("collective {} of method {}", collective.name, method.name),
              collective.options, own_collective ? method.collective_options : Options{}, given,
              "collective_options", alone[kCollective]);
  choice.sending = Resolve("method " + method.name, SendingOptions(), method.sending, given, "",
                           alone[kSending]);
  if (auto quantizer = choice.quantizer(); quantizer && IsOutsidePart(*quantizer)) {
    choice.sending["payload_dense"] = OutsidePartName("quantizer", *quantizer, "");
  }
  return choice;
}

void CheckMethod(const Catalog& catalog, const Method& method) {
  CellConfig config;
  config.sparsifier = method.sparsifier;
  if (IsOutsidePart(method.sparsifier)) {
    config.sparsifier = OutsidePartName("sparsifier", method.sparsifier, "");
  } else if (!method.dense()) {
    NeedEntry(catalog.sparsifiers, "sparsifier", method.sparsifier);
  }
  config.method_options = ResolveMethodOptions(catalog, method, json::object());
  config.feedback = IsOutsidePart(method.feedback)
                        ? OutsidePartName("feedback", method.feedback, "")
                        : method.feedback;
  Compose(config);
}

std::filesystem::path OutsideMethodFile(const Catalog& catalog, const std::string& given,
                                        const std::filesystem::path& folder) {
  const bool is_file = IsMethodFile(given);
  const std::filesystem::path beside = folder / given;
  if (is_file && SomethingIsAt(beside)) return beside;
  if (FindEntry(catalog.methods, given) != nullptr) return {};
  for (const auto& plugins : catalog.plugins) {
    const auto file = plugins / (is_file ? given : given + ".toml");
    if (SomethingIsAt(file) && HasFormOfMethod(file)) return file;
  }
  if (catalog.own_methods.empty()) return is_file ? beside : std::filesystem::path();
  const auto own = catalog.own_methods / (is_file ? given : given + ".toml");
  return SomethingIsAt(own) ? own : is_file ? beside : std::filesystem::path();
}

std::string FoundPart(const Catalog& catalog, const std::string& kind, const std::string& name,
                      const std::filesystem::path& folder) {
  if (IsOutsidePart(name)) return WithFolder(kind, name, folder);
  const bool built_in = IsBuiltIn(kind, name);
  std::string place = built_in ? "sparfuse itself" : "";
  std::string found = name;
  const auto take = [&](const std::string& where, const std::string& part,
                        const std::filesystem::path& from) {
    if (!place.empty()) {
      SPARFUSE_THROW(kConfig, fmt::format("{} \"{}\" is in {} and in {}; expected one of each name",
                                          kind, name, place, where));
    }
    place = where;
    found = WithFolder(kind, part, from);
  };
  for (const auto& plugins : catalog.plugins) {
    const auto path = plugins / (name + ".toml");
    if (!SomethingIsAt(path)) continue;
    for (const std::string& part : PartsOfFile(TomlFile::Read(path), name)) {
      take(path.string(), part, plugins);
    }
  }
  // Python is not asked about built-in parts, because that takes time.
  if (built_in || catalog.python.empty()) return found;
  for (const InstalledPart& part : InstalledParts(catalog.python)) {
    if (IsBuiltIn(kind, part.name)) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{} \"{}\" is in sparfuse itself and in {}; expected one of "
                                 "each name",
                                 kind, part.name, part.package));
    }
    if (part.name != name) continue;
    if (part.part.empty()) {
      SPARFUSE_THROW(kConfig, fmt::format("entry point {} = \"{}\" of {} names no class in a "
                                          "module; expected \"package.module:Class\"",
                                          part.name, part.value, part.package));
    }
    take(part.package, part.part, {});
  }
  return found;
}

void AddPluginsOfEnvironment(Catalog& catalog) {
  const char* const path = std::getenv(kPluginsVariable);
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) catalog.plugins.push_back(std::filesystem::absolute(folder));
  }
}

std::vector<NamedPlugin> PluginsOf(const Catalog& catalog) {
  std::vector<NamedPlugin> plugins;
  for (const auto& folder : catalog.plugins) {
    for (const auto& path : TomlFilesOf(folder)) {
      const auto library = LibraryOf(TomlFile::Read(path));
      if (library) plugins.push_back({path, &OpenPlugin(folder / *library)});
    }
  }
  return plugins;
}

std::vector<NamedPart> NamedParts(const Catalog& catalog) {
  std::vector<NamedPart> named;
  for (const auto& folder : catalog.plugins) {
    for (const auto& path : TomlFilesOf(folder)) {
      const std::string name = path.stem().string();
      for (const std::string& part : PartsOfFile(TomlFile::Read(path), name)) {
        named.push_back({name, part, path.string()});
      }
    }
  }
  if (catalog.python.empty()) return named;
  for (const InstalledPart& part : InstalledParts(catalog.python)) {
    named.push_back({part.name, part.part.empty() ? part.value : part.part, part.package});
  }
  return named;
}

std::vector<std::filesystem::path> OutsideMethodFiles(const Catalog& catalog) {
  std::vector<std::filesystem::path> files;
  for (const auto& folder : catalog.plugins) {
    std::ranges::copy_if(TomlFilesOf(folder), std::back_inserter(files), HasFormOfMethod);
  }
  if (!catalog.own_methods.empty())
    std::ranges::copy(TomlFilesOf(catalog.own_methods), std::back_inserter(files));
  return files;
}

OutsideMethod ReadOutsideMethod(const Catalog& catalog, const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("no file {}: expected the file of a method", path.string()));
  }
  const std::string text = ReadFile(path);
  Method method = CheckedMethod(catalog, path.string(), text);
  if (FindEntry(catalog.methods, method.name) != nullptr) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: \"{}\" is the name of a method of sparfuse; expected "
                                        "another name and file",
                                        path.string(), method.name));
  }
  return {std::move(method), ShortHash(text)};
}

std::vector<OptionSpec> OptionsWithoutRecipe(const workloads::WorkloadDescriptor& workload) {
  std::vector<OptionSpec> options = workload.options;
  std::erase_if(options, IsOfRecipe);
  return options;
}

std::vector<OptionSpec> RecipeOf(const workloads::WorkloadDescriptor& workload) {
  std::vector<OptionSpec> recipe = workload.options;
  std::erase_if(recipe, [](const OptionSpec& option) { return !IsOfRecipe(option); });
  return recipe;
}

}  // namespace sparfuse::harness

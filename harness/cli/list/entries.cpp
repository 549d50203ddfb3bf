// Makes the entries of `sparfuse list`, as JSON.
#include <fmt/format.h>

#include <functional>
#include <utility>

#include "baselines/plugin_library.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/feedback/feedback.hpp"
#include "harness/catalog/metrics.hpp"
#include "harness/catalog/recipe_file.hpp"
#include "harness/cli/list/list.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/experiment/claims_and_figures.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/machine/system.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json OptionsJson(std::span<const OptionSpec> options) {
  json list = json::array();
  for (const auto& option : options) {
    json entry = {{"name", option.name}, {"meaning", option.meaning}, {"choices", option.choices}};
    std::visit([&](const auto& value) { entry["default"] = value; }, option.fallback);
    if (option.min != option.max) entry["range"] = {option.min, option.max};
    list.push_back(std::move(entry));
  }
  return list;
}

template <class Part>
json EntryOf(const Part& part, std::string_view summary, std::string_view source) {
  return {{"name", part.name},
          {"summary", summary},
          {"source", source},
          {"revision", part.revision},
          {"deviations", part.deviations},
          {"options", OptionsJson(part.options)}};
}

// The entry of a part. Descriptors differ in their fields.
template <class Part>
json PartJson(const Part& part) {
  return EntryOf(part, part.summary, part.source);
}

json PartJson(const SparsifierDescriptor& part) {
  const std::string summary =
      part.exact_count ? "keeps exactly k elements" : "keeps about k elements";
  const Options defaults = ResolveOptions(part.name, part.options, {});
  json entry =
      EntryOf(part, summary + (part.index_shared ? ", the same on every rank" : ""), part.paper);
  entry["on_device"] = part.make(defaults, 1)->SelectsOnDevice();
  return entry;
}

json TraitsJson(const CollectiveTraits& traits) {
  static constexpr const char* kMass[] = {"exact", "rounded", "lost"};
  return {{"sums", traits.sums},
          {"drops", traits.drops},
          {"equal_counts", traits.equal_counts},
          {"same_indices", traits.same_indices},
          {"selects", traits.selects},
          {"periodic", traits.periodic},
          {"mass", kMass[static_cast<std::size_t>(traits.mass)]}};
}

json PartJson(const CollectiveDescriptor& part) {
  json entry = EntryOf(
      part, std::string(part.summary) + (part.native ? ", counted by formula" : ""), part.source);
  entry["payload"] = part.payload == PayloadKind::kSparse ? "sparse" : "dense";
  entry["native"] = part.native;
  entry["sums_on_host"] = part.sums_on_host;
  entry["traits"] = TraitsJson(part.TraitsOf(ResolveOptions(part.name, part.options, Options{})));
  return entry;
}

json PartJson(const workloads::WorkloadDescriptor& part) {
  return {{"name", part.name},
          {"summary", part.summary},
          {"source", ""},
          {"revision", part.revision},
          {"deviations", ""},
          {"options", OptionsJson(OptionsWithoutRecipe(part))},
          {"recipe", OptionsJson(RecipeOf(part))}};
}

json PartJson(const QuantizerDescriptor& part) {
  return {{"name", part.name},
          {"summary", part.paper},
          {"revision", part.revision},
          {"unbiased", part.unbiased},
          {"needs_feedback", part.needs_feedback},
          {"deviations", part.deviations},
          {"options", OptionsJson(part.options)}};
}

json PartJson(const FeedbackDescriptor& part) {
  return {{"name", part.name},
          {"summary", part.summary},
          {"options", OptionsJson(part.make ? part.options : FeedbackOptions(part.name))}};
}

template <class Part>
json PartsJson(std::span<const Part> parts) {
  json list = json::array();
  for (const auto& part : parts) list.push_back(PartJson(part));
  return list;
}

// Includes the parts of plugins that are found by name.
template <class Part>
json PartsJson(std::span<const Part> parts, const Catalog& catalog) {
  json list = PartsJson(parts);
  for (const NamedPlugin& plugin : PluginsOf(catalog)) {
    for (const Part& part : PartsOfKind<Part>(*plugin.parts)) {
      if (part.name != plugin.file.stem().string()) continue;
      list.push_back(PartJson(part));
      list.back()["plugin"] = plugin.file.string();
    }
  }
  return list;
}

json MethodJson(const Catalog& catalog, const Method& method) {
  return {{"name", method.name},
          {"title", method.title},
          {"summary", method.summary},
          {"source", method.paper},
          {"revision", method.revision},
          {"deviations", method.deviations},
          {"strategy", method.strategy},
          {"planner", method.planner},
          {"sparsifier", method.sparsifier},
          {"feedback", method.feedback},
          {"collective", method.collective},
          {"options", ToJson(ResolveMethodOptions(catalog, method, json::object()))}};
}

// Includes the user's own methods that a name finds. A refused file is listed with the reason.
json MethodsJson(const Catalog& catalog) {
  json list = json::array();
  for (const auto& method : catalog.methods) list.push_back(MethodJson(catalog, method));
  for (const fs::path& file : OutsideMethodFiles(catalog)) {
    try {
      list.push_back(MethodJson(catalog, ReadOutsideMethod(catalog, file).method));
    } catch (const Error& error) {
      list.push_back({{"name", file.stem().string()},
                      {"summary", std::string("cannot be read: ") + error.what()}});
    }
    list.back()["file"] = file.string();
  }
  return list;
}

json NamedPartsJson(const Catalog& catalog) {
  json list = json::array();
  for (const NamedPart& part : NamedParts(catalog)) {
    list.push_back({{"name", part.name}, {"summary", part.part}, {"source", part.place}});
  }
  return list;
}

json WorkloadsJson(const Catalog& catalog) {
  json list = json::array();
  for (const auto& workload : catalog.workloads) {
    json entry = PartJson(workload);
    entry["family"] = workload.family();
    entry["kind_of_data"] = workload.kind_of_data;
    entry["synthetic"] = !workload.small.empty();
    entry["small"] = workload.small;
    entry["sleeps"] = workload.sleeps;
    const workloads::LayerTable& layers = workloads::LayersOf(workload.name);
    entry["parameters"] = layers.numel();
    entry["tensors"] = layers.tensors.size();
    entry["unit"] = workload.unit;
    entry["metric"] = workload.metric;
    entry["batch_per_worker"] = workload.batch_per_worker;
    entry["target"] = workload.target;
    list.push_back(std::move(entry));
  }
  return list;
}

json RecipesJson() {
  json list = json::array();
  for (const NamedRecipe& recipe : NamedRecipes()) {
    list.push_back({{"name", recipe.name},
                    {"summary", recipe.title},
                    {"source", recipe.source},
                    {"deviations", recipe.differs},
                    {"like", recipe.like},
                    {"workload", recipe.workload},
                    {"data", recipe.data},
                    {"workers", recipe.workers},
                    {"batch_per_worker", recipe.batch_per_worker},
                    {"target", recipe.target},
                    {"recipe", recipe.recipe}});
  }
  return list;
}

// "modelled, emulated": the modes of an experiment's cells, in order of appearance.
json ModesOf(const Experiment& experiment) {
  json modes = json::array();
  for (const auto& part : experiment.parts) {
    for (const auto& cell : part.cells) {
      const json& mode = cell.json["mode"];
      if (std::find(modes.begin(), modes.end(), mode) == modes.end()) modes.push_back(mode);
    }
  }
  return modes;
}

json ExperimentsJson(Program& program) {
  std::vector<std::pair<std::string, fs::path>>
      files;  // by name; the user's files come before the project's
  for (const fs::path& folder : program.experiments()) {
    for (const auto& file : ExperimentFiles(folder))
      files.emplace_back(fs::relative(file, folder).replace_extension("").string(), file);
  }
  json list = json::array();
  for (const auto& [name, file] : files) {
    json entry = {{"name", name}, {"file", file.string()}};
    try {  // the list shows all files, good or not
      const Experiment experiment = program.Load(file.string());
      entry["summary"] = experiment.title;
      entry["source"] = experiment.paper;
      entry["cells"] = experiment.cells();
      entry["modes"] = ModesOf(experiment);
      entry["minutes"] = experiment.minutes > 0 ? json(experiment.minutes) : json();
    } catch (const std::exception& error) {
      entry["summary"] = std::string("cannot be read: ") + error.what();
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json MetricsJson() {
  json list = json::array();
  for (const Metric& metric : Metrics())
    list.push_back({{"name", metric.name}, {"summary", metric.meaning}, {"unit", metric.unit}});
  return list;
}

// Whether a cluster's file has a number of the kind.
bool HasKind(const TomlFile& file, std::string_view kind) {
  const auto is = [&](const json& table) {
    return table.is_object() && table.contains("kind") && table["kind"] == kind;
  };
  for (const char* tables : {"/input", "/compute", "/coder", "/curve"}) {
    const json* all = file.Find(tables);
    if (all != nullptr && std::any_of(all->begin(), all->end(), is)) return true;
  }
  return false;
}

// The kind of a declared cluster's numbers, with the kind of its card.
std::string KindOfDeclared(const ProfileFolders& profiles, const TomlFile& file) {
  std::string kind = HasKind(file, "imported") ? "declared, in part imported" : "declared";
  if (HasKind(file, kTraceKind)) kind += fmt::format(", {}", kTraceKind);
  const std::string card = file.String("", "card", "");
  if (card.empty()) return kind;
  try {
    return fmt::format("{}, its card {} {}", kind, card, ReadCard(profiles, card).kind);
  } catch (const Error&) {  // the error appears when the cluster is used
    return fmt::format("{}, its card {} refused", kind, card);
  }
}

// A whole number at the top of a file, or null; stacks have no nodes.
json Whole(const TomlFile& file, const std::string& key) {
  const json* found = file.Find("/" + key);
  return found != nullptr && found->is_number_integer() ? *found : json();
}

// Describes a file of results/profiles: a declared cluster, a preset or a stack.
json DeclaredJson(const ProfileFolders& profiles, const fs::path& path, const std::string& name) {
  const TomlFile file = TomlFile::Read(path);
  return {{"name", name},
          {"summary", file.String("", "title", "")},
          {"kind", KindOfDeclared(profiles, file)},
          {"source", file.String("", "source", "")},
          {"hardware", file.String("", "hardware", "")},
          {"nodes", Whole(file, "nodes")},
          {"ranks_per_node", Whole(file, "ranks_per_node")},
          {"file", path.string()}};
}

// Describes a file of measured profiles. A refused file is listed with the reason, so that the
// others are still listed.
json ProfileJson(const fs::path& file, const std::string& name) {
  json entry = {{"name", name}, {"summary", ""}, {"file", file.string()}};
  try {
    const ProfileOutcomes outcomes = ReadProfiles(file);
    if (!outcomes.empty() && outcomes[0].system.is_object())
      entry["summary"] = HardwareLine(outcomes[0].system);
    entry["kind"] = KindOfAll(outcomes);
    if (entry["kind"] != kMeasured) return entry;
    entry["kind"] = "measured elsewhere";
    CheckSameMachine(file, outcomes, ToJson(DescribeSystem()));
    entry["kind"] = "measured here";
  } catch (const Error& error) {
    if (entry.contains("kind")) return entry;
    entry["kind"] = "refused";
    entry["summary"] = error.what();
  }
  return entry;
}

// Lists this machine, in two roles, and then the files of results/profiles.
json ClustersJson(const ProfileFolders& profiles) {
  json list =
      json::array({{{"name", kOwnClusters[0]},
                    {"summary", "profiles of this store; all ranks share this machine's cores"},
                    {"kind", "this machine"}},
                   {{"name", kOwnClusters[1]},
                    {"summary", "profiles of this store; a machine like this one for every rank"},
                    {"kind", "this machine"}}});
  for (const std::string& name : profiles.Names(".json"))
    list.push_back(ProfileJson(profiles.File(name + ".json"), name));
  for (const std::string& name : FingerprintNames(profiles)) {
    json& entry = list.emplace_back(ProfileJson(FingerprintFile(profiles, name), name));
    entry["kind"] = entry["kind"].get<std::string>() + ", links alone (fingerprint)";
  }
  for (const std::string& name : profiles.Names(".toml"))
    list.push_back(DeclaredJson(profiles, profiles.File(name + ".toml"), name));
  return list;
}

// Lists the files of a folder beside the clusters' files.
json BesideClustersJson(const ProfileFolders& profiles, const char* folder) {
  json list = json::array();
  for (const std::string& name : profiles.Names(".toml", folder)) {
    json entry =
        DeclaredJson(profiles, profiles.File(fmt::format("{}/{}.toml", folder, name)), name);
    entry.erase("kind");
    list.push_back(std::move(entry));
  }
  return list;
}

json InputsJson() {
  json list = json::array();
  for (const InputSpec& input : InputSpecs()) {
    list.push_back({{"name", input.name},
                    {"summary", input.meaning},
                    {"group", input.group},
                    {"range", {input.values.least, input.values.most}},
                    {"default", input.otherwise ? json(*input.otherwise) : json()},
                    {"of_stack", input.of_stack}});
  }
  return list;
}

json FigureKindsJson() {
  json list = json::array();
  for (const FigureKind& kind : FigureKinds())
    list.push_back({{"name", kind.name}, {"summary", kind.summary}, {"keys", kind.keys}});
  return list;
}

// Numbers of ranks and bytes of a rank's payload for which rounds are listed. The bytes are whole
// elements of every payload.
constexpr std::size_t kListedRanks[] = {2, 8, 64};
constexpr std::uint64_t kListedBytes[] = {8'000'000};

// Lists the rounds with the default options. If sizes on the way depend on it, each selection is a
// hundredth of its input, and two ranks' selections are independent.
json RoundsJson(const CollectiveDescriptor& descriptor) {
  const auto collective = MakeCollective(descriptor);
  json list = json::array();
  for (const std::uint64_t bytes : kListedBytes) {
    for (const std::size_t ranks : kListedRanks) {
      const Topology topology{static_cast<int>(ranks), 1};
      const Options defaults = ResolveOptions(descriptor.name, descriptor.options, {});
      if (!descriptor.WhyNot(defaults, topology).empty()) continue;
      const std::uint64_t kept = bytes / kSparseElementBytes;
      const ExchangeSizes sizes =
          ExpectedSizes(*collective, {100 * kept, kept, 1},
                        std::vector<std::uint64_t>(ranks, bytes), {}, topology);
      const RoundPlan plan = collective->Rounds(sizes, topology);
      std::uint64_t steps = 0, messages = 0, sent = 0, worked = 0;
      for (const Round& round : plan.rounds) {
        steps += round.messages > 0 ? round.repeat : 0;
        for (const std::uint64_t elements : round.work) worked += elements;
      }
      for (const Traffic& traffic : plan.per_rank) {
        messages = std::max(messages, traffic.messages_sent);
        sent = std::max(sent, traffic.bytes_sent);
      }
      list.push_back({{"ranks", ranks},
                      {"payload_bytes", bytes},
                      {"steps", steps},
                      {"messages", messages},
                      {"sent_bytes", sent},
                      {"worked_elements", worked}});
    }
  }
  return list;
}

json CollectivesJson(const Catalog& catalog, bool rounds) {
  json list = PartsJson(catalog.collectives, catalog);
  for (json& entry : list) {
    if (rounds && !entry.contains("plugin"))
      entry["rounds"] = RoundsJson(FindCollective(entry["name"].get_ref<const std::string&>()));
  }
  return list;
}

json KeysJson() {
  json list = json::array();
  for (const KeyRow& row : ExperimentKeys()) {
    list.push_back({{"name", row.name},
                    {"summary", row.meaning},
                    {"table", row.table},
                    {"type", row.type},
                    {"unit", row.unit},
                    {"default", row.fallback}});
  }
  return list;
}

using Maker = std::function<json(Program&, const ListRequest&)>;

const std::vector<std::pair<std::string, Maker>>& Makers() {
  static const std::vector<std::pair<std::string, Maker>> kMakers = {
      {"methods", [](Program& p, const auto&) { return MethodsJson(p.catalog()); }},
      {"strategies",
       [](Program& p, const auto&) { return PartsJson(p.catalog().strategies, p.catalog()); }},
      {"planners",
       [](Program& p, const auto&) { return PartsJson(p.catalog().planners, p.catalog()); }},
      {"sparsifiers",
       [](Program& p, const auto&) { return PartsJson(p.catalog().sparsifiers, p.catalog()); }},
      {"quantizers", [](Program& p, const auto&) { return PartsJson(Quantizers(), p.catalog()); }},
      {"feedback", [](Program& p, const auto&) { return PartsJson(Feedbacks(), p.catalog()); }},
      {"collectives",
       [](Program& p, const auto& request) {
         return CollectivesJson(p.catalog(), request.rounds);
       }},
      {"parts", [](Program& p, const auto&) { return NamedPartsJson(p.catalog()); }},
      {"workloads", [](Program& p, const auto&) { return WorkloadsJson(p.catalog()); }},
      {"recipes", [](Program&, const auto&) { return RecipesJson(); }},
      {"clusters", [](Program& p, const auto&) { return ClustersJson(p.store().profiles()); }},
      {"presets",
       [](Program& p, const auto&) {
         return BesideClustersJson(p.store().profiles(), kPresetsFolder);
       }},
      {"stacks",
       [](Program& p, const auto&) {
         return BesideClustersJson(p.store().profiles(), kStacksFolder);
       }},
      {"inputs", [](Program&, const auto&) { return InputsJson(); }},
      {"metrics", [](Program&, const auto&) { return MetricsJson(); }},
      {"figures", [](Program&, const auto&) { return FigureKindsJson(); }},
      {"keys", [](Program&, const auto&) { return KeysJson(); }},
      {"experiments", [](Program& p, const auto&) { return ExperimentsJson(p); }}};
  return kMakers;
}

}  // namespace

const std::vector<std::string>& Listings() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [name, maker] : Makers()) names.push_back(name);
    return names;
  }();
  return kNames;
}

json Listing(Program& program, const ListRequest& request) {
  if (request.rounds && request.what != "collectives") {
    SPARFUSE_THROW(kConfig, fmt::format("list {} --rounds: only collectives have rounds; expected "
                                        "list collectives --rounds",
                                        request.what));
  }
  for (const auto& [name, maker] : Makers()) {
    if (name == request.what) return maker(program, request);
  }
  SPARFUSE_THROW(kConfig,
                 "unknown list \"" + request.what + "\"" + Suggestion(request.what, Listings()));
}

}  // namespace sparfuse::harness

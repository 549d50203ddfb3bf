#include "harness/catalog/cell_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "baselines/composition.hpp"
#include "core/base/error.hpp"
#include "harness/catalog/options_json.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// In the order of the enums' values.
template <class Enum>
const std::vector<std::string> kNames;
template <>
const std::vector<std::string> kNames<TrialKind> = {"throughput", "convergence", "profile",
                                                    "fingerprint"};
template <>
const std::vector<std::string> kNames<Mode> = {"measured", "emulated", "modelled"};
template <>
const std::vector<std::string> kNames<Transport> = {"mpi", "threads", "nccl"};
template <>
const std::vector<std::string> kNames<Place> = {"cpu", "cuda"};
template <>
const std::vector<std::string> kNames<Precision> = {"fp32", "tf32", "bf16"};

// JSON's own conversion would wrap.
template <class Integer>
Integer Fitting(const char* key, const json& given) {
  const bool fits =
      given.is_number_unsigned()
          ? std::in_range<Integer>(given.get<std::uint64_t>())
          : given.is_number_integer() && std::in_range<Integer>(given.get<std::int64_t>());
  if (!fits) {
    SPARFUSE_THROW(kData, fmt::format("configuration: {} = {}: expected an integer from {} to {}",
                                      key, Shown(given), std::numeric_limits<Integer>::min(),
                                      std::numeric_limits<Integer>::max()));
  }
  return given.get<Integer>();
}

// The members of a stored configuration; each error names the key.
class Reader {
 public:
  explicit Reader(const json& config) : config_(config) {
    if (!config.is_object()) SPARFUSE_THROW(kData, "configuration: expected an object");
  }

  const json& At(const char* key) const {
    const auto found = config_.find(key);
    if (found == config_.end()) {
      SPARFUSE_THROW(kData, fmt::format("configuration: {} is missing", key));
    }
    return *found;
  }
  template <class Value>
  void Read(const char* key, Value& value) const {
    const json& given = At(key);
    try {
      if constexpr (std::is_enum_v<Value>) {
        value = ValueOf<Value>(given.get<std::string>());
      } else if constexpr (std::is_same_v<Value, Options>) {
        value = OptionsFromJson(key, given);
      } else if constexpr (std::is_integral_v<Value>) {
        value = Fitting<Value>(key, given);
      } else {
        value = given.get<Value>();
      }
    } catch (const json::exception& error) {
      SPARFUSE_THROW(kData,
                     fmt::format("configuration: {} = {}: {}", key, Shown(given), error.what()));
    }
  }
  template <class Value>
  void Read(const char* key, std::optional<Value>& value) const {
    value.reset();
    if (!At(key).is_null()) Read(key, value.emplace());
  }
  // null for "".
  void ReadName(const char* key, std::string& value) const {
    value.clear();
    if (!At(key).is_null()) Read(key, value);
  }

 private:
  const json& config_;
};

// 1 rather than 1.0, as people write it.
json Number(double value) {
  constexpr double kExact = 1e15;
  if (value == std::floor(value) && std::abs(value) < kExact) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

json NameOrNull(const std::string& name) { return name.empty() ? json() : json(name); }

template <class Value>
json ValueOrNull(const std::optional<Value>& value) {
  return value ? json(*value) : json();
}

MethodChoice MethodChoiceOf(const json& table) {
  const Reader reader(table);
  MethodChoice choice;
  reader.Read("strategy", choice.strategy);
  reader.Read("strategy_options", choice.strategy_options);
  reader.Read("planner", choice.planner);
  reader.Read("planner_options", choice.planner_options);
  reader.Read("collective", choice.collective);
  // Of configurations from before collectives had options: none.
  if (table.contains("collective_options")) {
    reader.Read("collective_options", choice.collective_options);
  }
  json sending = json::object();
  for (const OptionSpec& option : SendingOptions()) {
    if (table.contains(option.name)) sending[option.name] = table[option.name];
  }
  choice.sending = OptionsFromJson("method_options", sending);
  return choice;
}

// What only a cell has, and what only a profile trial.
void AddCellKeys(json& to, const CellConfig& config) {
  to["method"] = config.method;
  to["method_content"] = NameOrNull(config.method_content);
  to["method_options"] = ToJson(config.method_options);
  to["sparsifier"] = config.sparsifier;
  to["sparsifier_options"] = OptionsToJson(config.sparsifier_options);
  to["density"] = Number(config.density);
  to["feedback"] = config.feedback;
  to["feedback_options"] = OptionsToJson(config.feedback_options);
  to["dense_tensors"] = {{"max_ndim", config.dense_tensors.max_ndim},
                         {"names", config.dense_tensors.names}};
  to["no_feedback_tensors"] = config.no_feedback_tensors;
  to["evaluate_every"] = ValueOrNull(config.evaluate_every);
  to["target"] = config.target ? Number(*config.target) : json();
  to["cluster"] = NameOrNull(config.cluster);
  to["inputs"] = json::object();
  for (const auto& [group, factor] : config.inputs) to["inputs"][group] = Number(factor);
}

void ReadCellKeys(const Reader& from, CellConfig& config) {
  from.Read("method", config.method);
  from.ReadName("method_content", config.method_content);
  config.method_options = MethodChoiceOf(from.At("method_options"));
  from.Read("sparsifier", config.sparsifier);
  from.Read("sparsifier_options", config.sparsifier_options);
  from.Read("density", config.density);
  from.Read("feedback", config.feedback);
  from.Read("feedback_options", config.feedback_options);
  const Reader dense(from.At("dense_tensors"));
  dense.Read("max_ndim", config.dense_tensors.max_ndim);
  dense.Read("names", config.dense_tensors.names);
  from.Read("no_feedback_tensors", config.no_feedback_tensors);
  from.Read("evaluate_every", config.evaluate_every);
  from.Read("target", config.target);
  from.ReadName("cluster", config.cluster);
  from.Read("inputs", config.inputs);
}

}  // namespace

std::optional<std::string> MethodChoice::quantizer() const {
  const std::string& name = StringOption(sending, "payload_dense");
  return name == "indexed" ? std::nullopt : std::optional(name);
}

template <class Enum>
std::span<const std::string> NamesOf() {
  return kNames<Enum>;
}

template <class Enum>
Enum ValueOf(const std::string& name) {
  const auto& names = kNames<Enum>;
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    SPARFUSE_THROW(kData, fmt::format("\"{}\": expected one of {}", name, fmt::join(names, ", ")));
  }
  return static_cast<Enum>(found - names.begin());
}

template std::span<const std::string> NamesOf<TrialKind>();
template std::span<const std::string> NamesOf<Mode>();
template std::span<const std::string> NamesOf<Transport>();
template std::span<const std::string> NamesOf<Place>();
template std::span<const std::string> NamesOf<Precision>();
template TrialKind ValueOf<TrialKind>(const std::string&);
template Mode ValueOf<Mode>(const std::string&);
template Transport ValueOf<Transport>(const std::string&);
template Place ValueOf<Place>(const std::string&);
template Precision ValueOf<Precision>(const std::string&);

void to_json(json& to, const LinkShape& link) {
  to = {{"gbps", Number(link.gbps)}, {"alpha_us", Number(link.alpha_us)}};
  // Identities without these stay.
  if (link.host_us > 0) to["host_us"] = Number(link.host_us);
  if (!link.has_within()) return;
  to["intra_node_gbps"] = Number(link.intra_node_gbps);
  to["intra_node_us"] = Number(link.intra_node_us);
}

void from_json(const json& from, LinkShape& link) {
  from.at("gbps").get_to(link.gbps);
  from.at("alpha_us").get_to(link.alpha_us);
  link.host_us = from.value("host_us", 0.0);
  link.intra_node_gbps = from.value("intra_node_gbps", 0.0);
  link.intra_node_us = from.value("intra_node_us", 0.0);
}

json ToJson(const std::optional<LinkShape>& link) { return ValueOrNull(link); }

std::string LinkWords(const json& link) {
  if (link.is_null()) return "unshaped";
  const auto shape = link.get<LinkShape>();
  return fmt::format("{} Gbit/s", shape.gbps) +
         (shape.has_within() ? fmt::format(", {} within nodes", shape.intra_node_gbps) : "");
}

json ToJson(const MethodChoice& choice) {
  json table = {{"strategy", choice.strategy},
                {"strategy_options", OptionsToJson(choice.strategy_options)},
                {"planner", choice.planner},
                {"planner_options", OptionsToJson(choice.planner_options)},
                {"collective", choice.collective},
                {"collective_options", OptionsToJson(choice.collective_options)}};
  table.update(OptionsToJson(choice.sending));
  return table;
}

json ToJson(const CellConfig& config) {
  json made = {{"kind", NameOf(config.kind)},
               {"mode", NameOf(config.mode)},
               {"workload", config.workload},
               {"workload_options", OptionsToJson(config.workload_options)},
               {"recipe", OptionsToJson(config.recipe)},
               {"workers", config.workers},
               {"ranks_per_node", config.ranks_per_node},
               {"threads_per_worker", config.threads_per_worker},
               {"batch_per_worker", config.batch_per_worker},
               {"accumulation", config.accumulation},
               {"transport", NameOf(config.transport)},
               {"device", NameOf(config.device)},
               {"precision", NameOf(config.precision)},
               {"link", ToJson(config.link)},
               {"warmup_steps", config.warmup_steps},
               {"steps", config.steps},
               {"deadline_seconds", Number(config.deadline_seconds)}};
  if (config.is_profile()) {
    made["sparsifiers"] = config.sparsifiers;
    made["quantizers"] = config.quantizers;
  } else if (!config.is_fingerprint()) {
    AddCellKeys(made, config);
  }
  return made;
}

CellConfig CellConfigOf(const json& stored) {
  json completed = stored;
  for (const LaterKey& key : LaterKeys()) {
    // An option that is missing in a table has its default where the part is made.
    const json::json_pointer at(key.pointer);
    if (at.parent_pointer().empty() && !completed.contains(at)) completed[at] = key.before;
  }
  const Reader from(completed);
  CellConfig config;
  from.Read("kind", config.kind);
  from.Read("mode", config.mode);
  from.Read("workload", config.workload);
  from.Read("workload_options", config.workload_options);
  from.Read("recipe", config.recipe);
  from.Read("workers", config.workers);
  from.Read("ranks_per_node", config.ranks_per_node);
  from.Read("threads_per_worker", config.threads_per_worker);
  from.Read("batch_per_worker", config.batch_per_worker);
  from.Read("accumulation", config.accumulation);
  from.Read("transport", config.transport);
  from.Read("device", config.device);
  from.Read("precision", config.precision);
  from.Read("link", config.link);
  from.Read("warmup_steps", config.warmup_steps);
  from.Read("steps", config.steps);
  from.Read("deadline_seconds", config.deadline_seconds);
  if (config.is_profile()) {
    from.Read("sparsifiers", config.sparsifiers);
    from.Read("quantizers", config.quantizers);
  } else if (!config.is_fingerprint()) {
    ReadCellKeys(from, config);
  }
  return config;
}

json ToJson(const TrialConfig& trial) {
  json made = ToJson(trial.cell);
  made["seed"] = trial.seed;
  made["block"] = trial.block;
  made["trial_id"] = trial.trial_id;
  json files = json::object();
  std::vector<std::string> sparsifiers = trial.cell.sparsifiers;
  sparsifiers.push_back(trial.cell.sparsifier);
  for (const std::string& name : sparsifiers) {
    if (IsPythonSparsifier(name)) files[name] = PythonFileOf(name).string();
  }
  made["python_files"] = std::move(files);
  return made;
}

TrialConfig TrialConfigOf(const json& stored) {
  TrialConfig trial{CellConfigOf(stored), 0, 0, ""};
  const Reader from(stored);
  from.Read("seed", trial.seed);
  from.Read("block", trial.block);
  from.Read("trial_id", trial.trial_id);
  for (const auto& [name, file] : from.At("python_files").items()) {
    KnowPythonFile(name, file.get<std::string>());
  }
  return trial;
}

std::span<const LaterKey> LaterKeys() {
  // A row is added with each key: {"/precision", "fp32"}.
  static const std::vector<LaterKey> kKeys = {
      {"/method_options/collective_options", json::object()},
      {"/method_options/planner_options/lane", "compute"},
      {"/method_options/dense_warmup_steps", 0},
      {"/method_options/bloom_policy", "leftmost"},
      {"/method_options/bloom_fpr", 0},
      {"/feedback_options/decay", 1}};
  return kKeys;
}

constexpr std::array<std::string_view, 4> kNotIdentity = {"block", "python_files", "seed",
                                                          "trial_id"};

std::string ConfigHash(const json& config, std::span<const LaterKey> later) {
  json identity = config;
  for (const std::string_view key : kNotIdentity) identity.erase(std::string(key));
  for (const LaterKey& key : later) {
    const json::json_pointer at(key.pointer);
    if (!identity.contains(at) || identity[at] != key.before) continue;
    identity[at.parent_pointer()].erase(at.back());
  }
  identity["schema"] = kConfigSchema;
  return ContentHash(identity);
}

std::string ConfigHash(const CellConfig& config) { return ConfigHash(ToJson(config)); }

bool SaysTheSame(const json& one, const json& other) {
  if (!one.is_object() || !other.is_object()) return false;
  const auto next = [](json::const_iterator at, const json& of) {
    while (at != of.end() && std::ranges::find(kNotIdentity, at.key()) != kNotIdentity.end()) ++at;
    return at;
  };
  auto a = next(one.begin(), one), b = next(other.begin(), other);
  while (a != one.end() && b != other.end()) {
    if (a.key() != b.key() || *a != *b) return false;
    a = next(++a, one), b = next(++b, other);
  }
  return a == one.end() && b == other.end();
}

std::string CellName(const CellConfig& config) {
  const json all = ToJson(config);
  std::string name;
  for (const char* key : {"kind", "mode", "method", "workload", "sparsifier", "density", "workers",
                          "link", "batch_per_worker", "device", "precision"}) {
    if (!all.contains(key)) continue;  // of a profile
    const json& value = all[key];
    name += fmt::format("{}{} = {}", name.empty() ? "" : ", ", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return name;
}

}  // namespace sparfuse::harness

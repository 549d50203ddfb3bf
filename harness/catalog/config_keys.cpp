#include "harness/catalog/config_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/options.hpp"
#include "core/base/thread_pool.hpp"
#include "harness/catalog/cell_config.hpp"
#include "harness/catalog/metrics.hpp"
#include "harness/files/canonical.hpp"

namespace sparfuse::harness {
namespace {

struct LinkKey {
  const char* name;
  Range values;
  bool needed = false;
};
constexpr LinkKey kLinkKeys[] = {{"gbps", kLinkGbps, true},
                                 {"alpha_us", kLinkAlphaMicroseconds, true},
                                 {"host_us", kLinkHostMicroseconds},
                                 {"intra_node_gbps", kLinkGbps},
                                 {"intra_node_us", kLinkAlphaMicroseconds}};

std::string WhatIsWrongWithLink(const nlohmann::json& value) {
  static const std::string kExpected = fmt::format(
      "\"none\" or {{ gbps = a number from {0}, alpha_us = a number from {1} }}, with "
      "intra_node_gbps and intra_node_us, from as much, where nodes have several ranks, and "
      "host_us = a number from {2} where the host takes long for an exchange",
      Text(kLinkGbps), Text(kLinkAlphaMicroseconds), Text(kLinkHostMicroseconds));
  if (value.is_string()) return value == "none" ? "" : kExpected;
  if (!value.is_object() || value.contains("intra_node_gbps") != value.contains("intra_node_us"))
    return kExpected;
  std::size_t known = 0;
  for (const LinkKey& key : kLinkKeys) {
    const auto given = value.find(key.name);
    if (given == value.end() && !key.needed) continue;
    if (given == value.end() || !WhatIsWrongWithNumber(*given, key.values).empty())
      return kExpected;
    ++known;
  }
  return known == value.size() ? "" : kExpected;
}

template <class Enum>
std::vector<std::string> All() {
  return {NamesOf<Enum>().begin(), NamesOf<Enum>().end()};
}

}  // namespace

std::span<const std::string> SparsityKeys() { return MethodKeys().subspan(3); }

std::span<const std::string> MethodKeys() {
  static const std::vector<std::string> kKeys = {
      "method",  "method_content", "method_options",  "sparsifier", "sparsifier_options",
      "density", "feedback",       "feedback_options"};
  return kKeys;
}

std::span<const std::string> PanelKeys() {
  static const std::vector<std::string> kKeys = {"workload",
                                                 "workload_options",
                                                 "link",
                                                 "workers",
                                                 "density",
                                                 "sparsifier",
                                                 "sparsifier_options",
                                                 "mode",
                                                 "batch_per_worker",
                                                 "accumulation",
                                                 "threads_per_worker",
                                                 "ranks_per_node",
                                                 "feedback",
                                                 "feedback_options",
                                                 "dense_tensors",
                                                 "no_feedback_tensors",
                                                 "method_options",
                                                 "cluster",
                                                 "inputs",
                                                 "transport",
                                                 "device",
                                                 "precision",
                                                 "recipe",
                                                 "steps",
                                                 "warmup_steps",
                                                 "target",
                                                 "evaluate_every",
                                                 "deadline_seconds",
                                                 "kind"};
  return kKeys;
}

std::span<const std::string> LaunchKeys() {
  static const std::vector<std::string> kKeys = {
      "kind",           "mode",   "cluster",          "ranks_per_node",
      "transport",      "recipe", "warmup_steps",     "steps",
      "evaluate_every", "target", "deadline_seconds", "threads_per_worker",
      "dense_tensors"};
  return kKeys;
}

std::string CanonicalWithout(nlohmann::json config, std::span<const std::string> keys) {
  for (const std::string& key : keys) config.erase(key);
  return CanonicalJson(config);
}

std::span<const ConfigKey> ConfigKeys() {
  using enum KeyType;
  static const std::vector<ConfigKey> kKeys = {
      {"kind",
       kString,
       {},
       {"throughput", "convergence"},
       "",
       "\"throughput\"",
       "what a trial measures: the time of its steps, or the metric while it trains"},
      {"mode",
       kString,
       {},
       {"measured", "emulated", "modelled"},
       "",
       "",
       "how numbers are obtained: on this machine, over a link that is slowed down, or by the "
       "model"},
      {"workload",
       kString,
       {},
       {},
       "",
       "",
       "what is trained: a name of `sparfuse list workloads`, or in mode modelled a model table, "
       "relative to this file: \"table:FILE.json\""},
      {"workload_options",
       kTable,
       {},
       {},
       "",
       "the workload's",
       "options that the workload takes beside its recipe"},
      {"method",
       kString,
       {},
       {},
       "",
       "",
       "a name of `sparfuse list methods`, or a method's file, relative to this one: "
       "\"path/NAME.toml\""},
      {"method_options",
       kTable,
       {},
       {},
       "",
       "the method's",
       "options of the method's strategy, planner, collective and sending by name, and "
       "`collective`; `plan`, units of given sizes in the place of the planner's: { units = [3, 8] "
       "}, "
       "numbers of tensors in ready order, or { bytes = [...] }; `strategy_options`, "
       "`planner_options`, `collective_options` where two take a "
       "name"},
      {"sparsifier",
       kString,
       {},
       {},
       "",
       "the method's",
       "a name of `sparfuse list sparsifiers`, or a class of a Python file relative to this one: "
       "\"python:FILE.py:ClassName\"; methods that send dense gradients ignore it"},
      {"sparsifier_options", kTable, {}, {}, "", "the sparsifier's", "options of the sparsifier"},
      {"density",
       kDensity,
       {},
       {},
       "fraction of elements",
       "0.01; nonzeros: the workload's, where it is sparse by nature",
       "how much of a gradient is kept; 1 for methods that send dense gradients"},
      {"feedback",
       kString,
       {},
       {"none", "residual", "momentum"},
       "",
       "the method's",
       "what becomes of what is not sent: it is lost, added to the next gradient, or added with "
       "DGC's momentum correction"},
      {"feedback_options",
       kTable,
       {},
       {},
       "",
       "the feedback's",
       "both: warmup_epochs, epoch_steps (density warm-up); residual: decay; momentum: momentum, "
       "nesterov, masking, clip"},
      {"dense_tensors",
       kTable,
       {},
       {},
       "",
       "{ max_ndim = 0, names = [] }",
       "tensors that are never sparsified: those of at most max_ndim dimensions, and those named; "
       "a name is a tensor's, or a regular expression that is found in theirs"},
      {"no_feedback_tensors",
       kStrings,
       {},
       {},
       "",
       "[]",
       "names of tensors (as in dense_tensors) without feedback: what is not sent of them is lost"},
      {"workers", kInteger, {1, 65536}, {}, "ranks", "", "how many ranks train together"},
      {"ranks_per_node",
       kInteger,
       {1, 65536},
       {},
       "ranks",
       "measured: workers; emulated: 1; modelled: the declared cluster's, else 1",
       "how many ranks share a node; a divisor of workers"},
      {"threads_per_worker",
       kInteger,
       {1, kMostThreads},
       {},
       "threads",
       "1",
       "threads that a rank computes with"},
      {"batch_per_worker",
       kInteger,
       {1, 1e6},
       {},
       "samples",
       "the workload's",
       "batch of a rank in one micro-step"},
      {"accumulation",
       kInteger,
       {1, 1e6},
       {},
       "micro-steps",
       "1",
       "backward passes whose gradients are added up before they are exchanged"},
      {"transport",
       kString,
       {},
       {"mpi", "threads", "nccl"},
       "",
       "\"mpi\"",
       "how ranks exchange: processes over MPI, threads of one process, or a card for each rank "
       "over NCCL (mode measured with device cuda)"},
      {"device",
       kString,
       {},
       {"cpu", "cuda"},
       "",
       "\"cpu\"",
       "where the workload trains and kernels run; cuda in mode measured only"},
      {"precision",
       kString,
       {},
       {"fp32", "tf32", "bf16"},
       "",
       "\"fp32\"",
       "of products of matrices and convolutions: IEEE float32, TF32 (cards only), or bfloat16 by "
       "autocast; parameters, gradients and optimizer are float32 always"},
      {"link",
       kLink,
       {},
       {},
       "Gbit/s, microseconds",
       "\"none\"",
       "the link of a node, which a shaped transport emulates or the model takes, and intra_node_* "
       "those of its ranks to one another; none: the machine's own"},
      {"warmup_steps",
       kInteger,
       {0, 1e7},
       {},
       "steps",
       "5, behind a live method's dense_warmup_steps; convergence: 0",
       "steps before those measured"},
      {"steps",
       kInteger,
       {1, 1e7},
       {},
       "steps",
       "15; convergence: the workload's",
       "measured steps; convergence: the most steps"},
      {"evaluate_every",
       kInteger,
       {1, 1e7},
       {},
       "steps",
       "the workload's",
       "kind convergence only: steps between evaluations"},
      {"target",
       kNumber,
       {1e-6, 1e9},
       {},
       "the workload's metric",
       "the workload's",
       "kind convergence only: training stops when the metric reaches it"},
      {"recipe",
       kTable,
       {},
       {},
       "",
       "the workload's",
       "learning rate, optimizer, schedule: what the workload trains with"},
      {"deadline_seconds",
       kNumber,
       {0.001, 86400},
       {},
       "seconds",
       "60",
       "the longest that a rank waits for another"},
      {"cluster",
       kString,
       {},
       {},
       "",
       "",
       "mode modelled only, and needed there: \"this-machine\", \"machines-like-this\" (one for "
       "every rank) or a file of results/profiles, measured or declared"},
      {"inputs",
       kTable,
       {},
       {},
       "factors",
       "1 each",
       "with a declared cluster only: what of its inputs is scaled, { host_overhead = 2 }"},
  };
  return kKeys;
}

std::vector<std::string> ConfigKeyNames() {
  std::vector<std::string> names;
  for (const auto& key : ConfigKeys()) names.push_back(key.name);
  return names;
}

const ConfigKey* FindConfigKey(std::string_view name) {
  for (const auto& key : ConfigKeys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string TypeText(const ConfigKey& key) {
  switch (key.type) {
    case KeyType::kString:
      return key.choices.empty() ? "string"
                                 : fmt::format("\"{}\"", fmt::join(key.choices, "\", \""));
    case KeyType::kInteger:
      return "integer, " + Text(key.range);
    case KeyType::kNumber:
      return "number, " + Text(key.range);
    case KeyType::kDensity:
      return "number in (0, 1]";
    case KeyType::kTable:
      return "table";
    case KeyType::kStrings:
      return "list of strings";
    case KeyType::kLink:
      return fmt::format(
          "\"none\" or {{ gbps, alpha_us }}, {} and {}; intra_node_gbps, intra_node_us; host_us",
          Text(kLinkGbps), Text(kLinkAlphaMicroseconds));
  }
  return "";
}

std::string WhatIsWrong(const ConfigKey& key, const nlohmann::json& value) {
  switch (key.type) {
    case KeyType::kString: {
      if (!value.is_string()) return "a string";
      const auto& text = value.get_ref<const std::string&>();
      if (key.choices.empty() ||
          std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end()) {
        return "";
      }
      const std::string nearest = NearestName(text, key.choices);
      return fmt::format("one of {}{}", fmt::join(key.choices, ", "),
                         nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
    }
    case KeyType::kInteger:
      return WhatIsWrongWithInteger(value, key.range);
    case KeyType::kNumber:
      return WhatIsWrongWithNumber(value, key.range);
    case KeyType::kDensity:
      return value.is_number() && value.get<double>() > 0 && value.get<double>() <= 1
                 ? ""
                 : "a number in (0, 1]: the fraction of elements that is kept";
    case KeyType::kTable:
      return value.is_object() ? "" : "a table";
    case KeyType::kStrings:
      return value.is_array() && std::all_of(value.begin(), value.end(),
                                             [](const auto& each) { return each.is_string(); })
                 ? ""
                 : "a list of strings";
    case KeyType::kLink:
      return WhatIsWrongWithLink(value);
  }
  return "";
}

std::span<const std::string> MetricNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Metric& metric : Metrics()) names.push_back(metric.name);
    return names;
  }();
  return kNames;
}

}  // namespace sparfuse::harness

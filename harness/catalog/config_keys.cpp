#include "harness/catalog/config_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/options.hpp"

namespace sparfuse::harness {
namespace {

std::string WhatIsWrongWithLink(const nlohmann::json& value) {
  static const std::string kExpected =
      "\"none\" or { gbps = a number above 0, alpha_us = a number of at least 0 }";
  if (value.is_string()) return value == "none" ? "" : kExpected;
  if (!value.is_object() || value.size() != 2 || !value.contains("gbps") ||
      !value.contains("alpha_us")) {
    return kExpected;
  }
  const auto& gbps = value["gbps"];
  const auto& alpha = value["alpha_us"];
  const bool good =
      gbps.is_number() && gbps.get<double>() > 0 && alpha.is_number() && alpha.get<double>() >= 0;
  return good ? "" : kExpected;
}

}  // namespace

std::span<const std::string> SparsityKeys() { return MethodKeys().subspan(2); }

std::span<const std::string> MethodKeys() {
  static const std::vector<std::string> kKeys = {
      "method",  "method_options", "sparsifier",      "sparsifier_options",
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

std::span<const ConfigKey> ConfigKeys() {
  using enum KeyType;
  static const std::vector<ConfigKey> kKeys = {
      {"kind", kString, 0, {"throughput", "convergence"}},
      {"mode", kString, 0, {"measured", "emulated", "modelled"}},
      {"workload", kString},
      {"workload_options", kTable},
      {"method", kString},
      {"method_options", kTable},
      {"sparsifier", kString},
      {"sparsifier_options", kTable},
      {"density", kDensity},
      {"feedback", kString, 0, {"none", "residual", "momentum"}},
      {"feedback_options", kTable},
      {"dense_tensors", kTable},
      {"no_feedback_tensors", kStrings},
      {"workers", kInteger, 1},
      {"ranks_per_node", kInteger, 1},
      {"threads_per_worker", kInteger, 1},
      {"batch_per_worker", kInteger, 1},
      {"accumulation", kInteger, 1},
      {"transport", kString, 0, {"mpi", "threads", "nccl"}},
      {"device", kString, 0, {"cpu", "cuda"}, "cpu"},
      {"precision", kString, 0, {"fp32", "tf32", "bf16"}, "fp32"},
      {"link", kLink},
      {"warmup_steps", kInteger, 0},
      {"steps", kInteger, 1},
      {"evaluate_every", kInteger, 1},
      {"target", kNumber},
      {"recipe", kTable},
      {"deadline_seconds", kNumber},
      {"cluster", kString},
      {"inputs", kTable},
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

nlohmann::json ConfigValue(const nlohmann::json& config, const std::string& key) {
  if (config.contains(key)) return config[key];
  const ConfigKey* known = FindConfigKey(key);
  return known == nullptr ? nlohmann::json() : known->absent;
}

void SetConfigValue(nlohmann::json& config, const std::string& key, nlohmann::json value) {
  if (value != FindConfigKey(key)->absent) config[key] = std::move(value);
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
      return value.is_number_integer() && value.get<std::int64_t>() >= key.min &&
                     value.get<std::int64_t>() <= 1'000'000'000
                 ? ""
                 : fmt::format("an integer of at least {}", key.min);
    case KeyType::kNumber:
      return value.is_number() && value.get<double>() > 0 ? "" : "a number above 0";
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
  static const std::vector<std::string> kNames = {
      "step_seconds",       "throughput",
      "forward_seconds",    "backward_seconds",
      "sparsify_seconds",   "exposed_communication_seconds",
      "decompress_seconds", "update_seconds",
      "other_seconds",      "align_wait_seconds",
      "payload_bytes",      "sent_bytes",
      "received_bytes",     "messages_sent",
      "achieved_density",   "residual_norm",
      "tensors_missing",    "fibres_missing",
      "exchanges",          "loss",
      "final_metric",       "steps_to_target",
      "seconds_to_target"};
  return kNames;
}

}  // namespace sparfuse::harness

#include "harness/catalog/catalog.hpp"

#include <fmt/format.h>

#include "baselines/composition.hpp"
#include "harness/catalog/config_keys.hpp"

namespace sparfuse::harness {
namespace {

const nlohmann::json& Group(const nlohmann::json& given, const char* name) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  const auto group = given.find(name);
  return group != given.end() && group->is_object() ? *group : kEmpty;
}

nlohmann::json Resolve(const std::string& owner, const CatalogPart& part,
                       const nlohmann::json& from_file, const nlohmann::json& given) {
  nlohmann::json merged = from_file;
  merged.update(given);
  return OptionsToJson(ResolveOptions(owner, part.options, OptionsFromJson(owner, merged)));
}

}  // namespace

nlohmann::json ResolveMethodOptions(const Catalog& catalog, const Method& method,
                                    const nlohmann::json& given) {
  const auto& strategy = NeedEntry(catalog.strategies, "strategy", method.strategy);
  const auto& planner = NeedEntry(catalog.planners, "planner", method.planner);
  nlohmann::json for_strategy = Group(given, "strategy_options");
  nlohmann::json for_planner = Group(given, "planner_options");
  nlohmann::json for_sending = OptionsToJson(method.sending);
  std::string sends;  // an option of sending that `given` has
  std::string collective = method.collective;
  const MethodOptions takes{strategy.options, planner.options, SendingOptions()};
  for (const auto& [key, value] : given.items()) {
    if ((key == "strategy_options" || key == "planner_options") && value.is_object()) continue;
    if (key == "collective" && value.is_string()) {
      collective = value.get<std::string>();
      continue;
    }
    const auto owner = takes.OwnerOf(key, method.name);
    if (!owner) {
      std::vector<std::string> known = takes.Names();
      known.emplace_back("collective");
      SPARFUSE_THROW(kConfig, fmt::format("method {}: unknown option \"{}\" = {}{}", method.name,
                                          key, value.dump(), Suggestion(key, known)));
    }
    using enum MethodOptions::Owner;
    if (*owner == kSending) sends = key;
    (*owner == kSending    ? for_sending
     : *owner == kStrategy ? for_strategy
                           : for_planner)[key] = value;
  }
  const auto& exchange = NeedEntry(catalog.collectives, "collective", collective);
  if (exchange.sparse != method.sends_payloads()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("method {}: the collective \"{}\" {} and the sparsifier is \"{}\"",
                               method.name, collective,
                               exchange.sparse ? "takes sparse payloads"
                                               : "adds equal positions, not unequal indices,",
                               method.sparsifier));
  }
  const std::string owner = "method " + method.name;
  const auto sending =
      OptionsToJson(ResolveOptions(owner, SendingOptions(), OptionsFromJson(owner, for_sending)));
  if (!method.sends_payloads() && !for_sending.empty()) {
    const std::string key = sends.empty() ? for_sending.begin().key() : sends;
    SPARFUSE_THROW(kConfig,
                   fmt::format("method {}: {} = {}: it sends dense gradients; expected it with "
                               "payloads only",
                               method.name, key, sending[key].dump()));
  }
  nlohmann::json resolved = {
      {"strategy", strategy.name},
      {"strategy_options",
       Resolve(fmt::format("strategy {} of method {}", strategy.name, method.name), strategy,
               method.strategy_options, for_strategy)},
      {"planner", planner.name},
      {"planner_options", Resolve(fmt::format("planner {} of method {}", planner.name, method.name),
                                  planner, method.planner_options, for_planner)},
      {"collective", collective}};
  const auto defaults = OptionsToJson(ResolveOptions(owner, SendingOptions(), {}));
  for (const auto& [key, value] : sending.items()) {
    // The two codings came together, before the others: what they identify stays the same.
    const bool together = key == "payload_values" || key == "payload_indices";
    const bool coded = sending["payload_values"] != defaults["payload_values"] ||
                       sending["payload_indices"] != defaults["payload_indices"];
    if (together ? coded : value != defaults[key]) resolved[key] = value;
  }
  return resolved;
}

void CheckMethod(const Catalog& catalog, const Method& method) {
  try {
    const auto& strategy = NeedEntry(catalog.strategies, "strategy", method.strategy);
    if (!method.dense()) NeedEntry(catalog.sparsifiers, "sparsifier", method.sparsifier);
    const auto& known = FindConfigKey("feedback")->choices;
    if (std::find(known.begin(), known.end(), method.feedback) == known.end()) {
      SPARFUSE_THROW(kConfig, fmt::format("unknown feedback \"{}\"{}", method.feedback,
                                          Suggestion(method.feedback, known)));
    }
    if (strategy.sparse != method.sends_payloads()) {
      SPARFUSE_THROW(
          kConfig,
          fmt::format("strategy \"{}\" {} and the sparsifier is \"{}\"", strategy.name,
                      strategy.sparse ? "sparsifies" : "sends dense gradients", method.sparsifier));
    }
    if (NeedEntry(catalog.planners, "planner", method.planner).ahead_only && !strategy.ahead) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("planner \"{}\" plans tensor by tensor and strategy \"{}\" "
                                 "does not sparsify ahead",
                                 method.planner, strategy.name));
    }
    ResolveMethodOptions(catalog, method, nlohmann::json::object());
  } catch (const Error& error) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("the file of method \"{}\": {}", method.name, error.what()));
  }
}

}  // namespace sparfuse::harness

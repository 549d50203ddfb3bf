#include "harness/catalog.hpp"

#include <fmt/format.h>

namespace sparfuse {
namespace {

const nlohmann::json& Group(const nlohmann::json& given, const char* name) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  const auto group = given.find(name);
  return group != given.end() && group->is_object() ? *group : kEmpty;
}

bool Has(std::span<const OptionSpec> options, const std::string& option) {
  for (const auto& spec : options) {
    if (spec.name == option) return true;
  }
  return false;
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
  nlohmann::json for_payload = {{"payload_values", method.payload_values},
                                {"payload_indices", method.payload_indices}};
  bool codes = false;
  std::string collective = method.collective;
  for (const auto& [key, value] : given.items()) {
    if ((key == "strategy_options" || key == "planner_options") && value.is_object()) continue;
    if (key == "collective" && value.is_string()) {
      collective = value.get<std::string>();
      continue;
    }
    if (Has(PayloadOptions(), key)) {
      for_payload[key] = value;
      codes = true;
      continue;
    }
    const bool in_strategy = Has(strategy.options, key);
    const bool in_planner = Has(planner.options, key);
    if (in_strategy && in_planner) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("method {}: both its strategy and its planner take \"{}\"; "
                                 "expected it in strategy_options or planner_options",
                                 method.name, key));
    }
    if (!in_strategy && !in_planner) {
      std::vector<std::string> known = {"collective"};
      if (!method.dense()) {
        for (const auto& spec : PayloadOptions()) known.push_back(spec.name);
      }
      for (const auto& spec : strategy.options) known.push_back(spec.name);
      for (const auto& spec : planner.options) known.push_back(spec.name);
      SPARFUSE_THROW(kConfig, fmt::format("method {}: unknown option \"{}\" = {}{}", method.name,
                                          key, value.dump(), Suggestion(key, known)));
    }
    (in_strategy ? for_strategy : for_planner)[key] = value;
  }
  const auto& exchange = NeedEntry(catalog.collectives, "collective", collective);
  if (exchange.sparse == method.dense()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("method {}: the collective \"{}\" {} and the sparsifier is \"{}\"",
                               method.name, collective,
                               exchange.sparse ? "takes sparse payloads"
                                               : "adds equal positions, not unequal indices,",
                               method.sparsifier));
  }
  const std::string owner = "payloads of method " + method.name;
  const auto coding =
      OptionsToJson(ResolveOptions(owner, PayloadOptions(), OptionsFromJson(owner, for_payload)));
  const bool coded = coding != OptionsToJson(ResolveOptions(owner, PayloadOptions(), {}));
  if (method.dense() && (codes || coded)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("method {}: payload_values = {}, payload_indices = {}: it sends "
                               "dense gradients; expected them with sparse payloads only",
                               method.name, coding["payload_values"].dump(),
                               coding["payload_indices"].dump()));
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
  if (coded) resolved.update(coding);
  return resolved;
}

void CheckMethod(const Catalog& catalog, const Method& method) {
  try {
    const auto& strategy = NeedEntry(catalog.strategies, "strategy", method.strategy);
    if (!method.dense()) NeedEntry(catalog.sparsifiers, "sparsifier", method.sparsifier);
    static const std::vector<std::string> kFeedback = {"none", "residual"};
    if (std::find(kFeedback.begin(), kFeedback.end(), method.feedback) == kFeedback.end()) {
      SPARFUSE_THROW(kConfig, fmt::format("unknown feedback \"{}\"{}", method.feedback,
                                          Suggestion(method.feedback, kFeedback)));
    }
    if (strategy.sparse == method.dense()) {
      SPARFUSE_THROW(
          kConfig,
          fmt::format("strategy \"{}\" {} and the sparsifier is \"{}\"", strategy.name,
                      strategy.sparse ? "sparsifies" : "sends dense gradients", method.sparsifier));
    }
    ResolveMethodOptions(catalog, method, nlohmann::json::object());
  } catch (const Error& error) {
    SPARFUSE_THROW(kConfig, fmt::format("method.toml of \"{}\": {}", method.name, error.what()));
  }
}

}  // namespace sparfuse

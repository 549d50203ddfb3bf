#include "harness/catalog/method_file.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "baselines/composition.hpp"
#include "core/base/error.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

Method ParseMethodFile(std::string_view path, std::string_view text) {
  const TomlFile file = TomlFile::Parse(text, std::string(path));
  static const std::vector<std::string> kKeys = {
      "name",         "title",          "paper",           "summary",          "revision",
      "deviations",   "strategy",       "planner",         "sparsifier",       "feedback",
      "collective",   "payload_values", "payload_indices", "payload_dense",    "threshold_period",
      "replan_every", "dense_fallback", "planner_options", "sparsifier_fixed", "strategy_options"};
  file.CheckKeys("", "method", kKeys);
  Method method;
  method.name = file.RequiredString("", "name");
  const std::string stem = std::filesystem::path(path).stem().string();
  if (method.name != stem) file.FailValue("/name", fmt::format("the file's name, \"{}\"", stem));
  method.title = file.RequiredString("", "title");
  method.paper = file.RequiredString("", "paper");
  method.summary = file.RequiredString("", "summary");
  if (file.Find("/revision") == nullptr) file.Fail("", "the key \"revision\" is missing");
  method.revision = static_cast<int>(file.Integer("", "revision", 0, 1));
  if (const auto* deviations = file.Find("/deviations")) {
    if (!deviations->is_string()) file.FailValue("/deviations", "a string");
    method.deviations = deviations->get<std::string>();
  }
  method.strategy = file.RequiredString("", "strategy");
  method.planner = file.RequiredString("", "planner");
  method.sparsifier = file.RequiredString("", "sparsifier");
  method.feedback = file.String("", "feedback", "none");
  method.collective = file.RequiredString("", "collective");
  nlohmann::json sending = nlohmann::json::object();
  for (const OptionSpec& option : SendingOptions()) {
    if (const auto* given = file.Find("/" + option.name)) sending[option.name] = *given;
  }
  method.sending = OptionsFromJson("the file of method \"" + method.name + "\"", sending);
  method.sparsifier_fixed = file.Boolean("", "sparsifier_fixed", false);
  for (auto [key, table] : {std::pair{"strategy_options", &method.strategy_options},
                            std::pair{"planner_options", &method.planner_options}}) {
    if (const auto* given = file.Find(std::string("/") + key)) {
      if (!given->is_object()) file.FailValue(std::string("/") + key, "a table");
      *table = *given;
    }
  }
  return method;
}

Options OptionsFromJson(std::string_view owner, const nlohmann::json& table) {
  Options options;
  for (const auto& [key, value] : table.items()) {
    if (value.is_boolean()) {
      options[key] = value.get<bool>();
    } else if (value.is_number_integer()) {
      options[key] = value.get<std::int64_t>();
    } else if (value.is_number_float()) {
      options[key] = value.get<double>();
    } else if (value.is_string()) {
      options[key] = value.get<std::string>();
    } else {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{}: {} = {}: expected true or false, a number or a string", owner,
                                 key, Shown(value)));
    }
  }
  return options;
}

nlohmann::json OptionsToJson(const Options& options) {
  nlohmann::json table = nlohmann::json::object();
  for (const auto& [key, value] : options) {
    std::visit([&, &name = key](const auto& v) { table[name] = v; }, value);
  }
  return table;
}

}  // namespace sparfuse::harness

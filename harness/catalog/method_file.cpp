#include "harness/catalog/method_file.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "baselines/composition.hpp"
#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/records/options_json.hpp"

namespace sparfuse::harness {

Method ParseMethodFile(std::string_view path, std::string_view text) {
  const TomlFile file = TomlFile::Parse(text, std::string(path));
  static const std::vector<std::string> kKeys = {"name",
                                                 "title",
                                                 "paper",
                                                 "summary",
                                                 "revision",
                                                 "deviations",
                                                 "strategy",
                                                 "planner",
                                                 "sparsifier",
                                                 "feedback",
                                                 "collective",
                                                 "payload_values",
                                                 "payload_indices",
                                                 "bloom_policy",
                                                 "bloom_fpr",
                                                 "payload_dense",
                                                 "threshold_period",
                                                 "replan_every",
                                                 "dense_fallback",
                                                 "dense_warmup_steps",
                                                 "planner_options",
                                                 "sparsifier_fixed",
                                                 "strategy_options",
                                                 "conformance",
                                                 "collective_options"};
  file.CheckKeys("", "method", kKeys);
  Method method;
  method.name = file.RequiredString("", "name");
  const std::string stem = std::filesystem::path(path).stem().string();
  if (method.name != stem) file.FailValue("/name", fmt::format("the file's name, \"{}\"", stem));
  method.title = file.RequiredString("", "title");
  method.paper = file.RequiredString("", "paper");
  method.summary = file.RequiredString("", "summary");
  if (file.Find("/revision") == nullptr) file.Fail("", "the key \"revision\" is missing");
  method.revision = static_cast<int>(file.Integer("", "revision", 0, {1, 1e6}));
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
  for (auto [key, options] : {std::pair{"strategy_options", &method.strategy_options},
                              std::pair{"planner_options", &method.planner_options},
                              std::pair{"collective_options", &method.collective_options}}) {
    if (const auto* given = file.Find(std::string("/") + key)) {
      if (!given->is_object()) file.FailValue(std::string("/") + key, "a table");
      *options = OptionsFromJson(method.name + ": " + key, *given);
    }
  }
  if (file.Find("/conformance") != nullptr) {
    static const std::vector<std::string> kConformanceKeys = {"options"};
    file.CheckKeys("/conformance", "[conformance]", kConformanceKeys);
    if (const auto* given = file.Find("/conformance/options")) {
      if (!given->is_object()) file.FailValue("/conformance/options", "a table");
      method.conformance_options = *given;
    }
  }
  return method;
}

bool IsMethodFile(std::string_view method) { return method.ends_with(".toml"); }

bool HasFormOfMethod(const std::filesystem::path& path) {
  try {
    const TomlFile file = TomlFile::Read(path);
    return file.Find("/strategy") != nullptr && file.Find("/collective") != nullptr;
  } catch (const Error&) {  // whoever loads it is told
    return false;
  }
}

std::string MethodNameOf(std::string_view method) {
  return IsMethodFile(method) ? std::filesystem::path(method).stem().string() : std::string(method);
}

bool MeansMethodFile(std::string_view one, std::string_view other) {
  return IsMethodFile(one) != IsMethodFile(other) && MethodNameOf(one) == MethodNameOf(other);
}

OutsideMethod ReadMethodFile(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} is not there; expected the file of a method", path.string()));
  }
  const std::string text = ReadFile(path);
  return {ParseMethodFile(path.string(), text), ShortHash(text)};
}

}  // namespace sparfuse::harness

#include "harness/catalog/method_file.hpp"

#include <fmt/format.h>

#include "baselines/composition.hpp"
#include "core/base/error.hpp"
#include "harness/records/given_record.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

template <>
RecordKeys KeysOf<Method>() {
  using M = Method;
  static constexpr auto kKeys = KeyTable<M>(
      Given<&M::name>("name", "", "the file's name"),
      Given<&M::title>("title", "", "its name in papers and figures"),
      Given<&M::paper>("paper", "", "the paper that describes it"),
      Given<&M::summary>("summary", "", "the method in one line"),
      Given<&M::revision>("revision", "", "raised when results may change", {.range = {1, 1e6}}),
      Given<&M::deviations>("deviations", "\"\"", "differences from the paper"),
      Given<&M::strategy>("strategy", "", "a name of `sparfuse list strategies`"),
      Given<&M::planner>("planner", "", "a name of `sparfuse list planners`"),
      Given<&M::sparsifier>(
          "sparsifier", "",
          "a name of `sparfuse list sparsifiers`, \"none\", or, as any part,\n     "
          "                      \"python:FILE.py:Class\" from the file's folder"),
      Given<&M::feedback>("feedback", "\"none\"", "a name of `sparfuse list feedback`"),
      Given<&M::collective>("collective", "", "a name of `sparfuse list collectives`"),
      Given<&M::sparsifier_fixed>("sparsifier_fixed", "false",
                                  "an experiment may not choose another sparsifier"),
      Given<&M::strategy_options>("strategy_options", "{}", "options of the strategy"),
      Given<&M::planner_options>("planner_options", "{}", "options of the planner"),
      Given<&M::collective_options>("collective_options", "{}", "options of the collective"));
  return kKeys;
}

namespace {

struct Conformance {
  Options options;
};

}  // namespace

template <>
RecordKeys KeysOf<Conformance>() {
  static constexpr auto kKeys = KeyTable<Conformance>(Given<&Conformance::options>(
      "options", "{}", "options in the tests of the method's laws, over its own"));
  return kKeys;
}

Method ParseMethodFile(std::string_view path, std::string_view text) {
  const TomlFile file = TomlFile::Parse(text, std::string(path));
  std::vector<std::string> beside = {"conformance"};
  nlohmann::json sending = nlohmann::json::object();
  for (const OptionSpec& option : SendingOptions()) {
    beside.push_back(option.name);
    if (const auto* given = file.Find("/" + option.name)) sending[option.name] = *given;
  }
  Method method;
  ReadTable(file, "", "method", method, beside);
  const std::string stem = std::filesystem::path(path).stem().string();
  if (method.name != stem) file.FailValue("/name", fmt::format("the file's name, \"{}\"", stem));
  method.sending = OptionsFromJson("the file of method \"" + method.name + "\"", sending);
  Conformance conformance;
  ReadTable(file, "/conformance", "[conformance]", conformance);
  method.conformance_options = std::move(conformance.options);
  return method;
}

bool IsMethodFile(std::string_view method) { return method.ends_with(".toml"); }

bool HasFormOfMethod(const std::filesystem::path& path) {
  try {
    const TomlFile file = TomlFile::Read(path);
    return file.Find("/strategy") != nullptr && file.Find("/collective") != nullptr;
  } catch (const Error&) {  // reported when the file is loaded
    return false;
  }
}

std::string MethodNameOf(std::string_view method) {
  return IsMethodFile(method) ? std::filesystem::path(method).stem().string() : std::string(method);
}

bool MeansMethodFile(std::string_view one, std::string_view other) {
  return IsMethodFile(one) != IsMethodFile(other) && MethodNameOf(one) == MethodNameOf(other);
}

}  // namespace sparfuse::harness

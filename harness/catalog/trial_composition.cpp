#include "harness/catalog/trial_composition.hpp"

#include <string>
#include <vector>

#include "harness/catalog/method_file.hpp"
#include "harness/catalog/python_file.hpp"

namespace sparfuse::harness {

using nlohmann::json;

Composition Compose(const json& config) {
  const json& method = config.at("method_options");
  MethodParts parts;
  parts.strategy = method.at("strategy");
  parts.strategy_options =
      OptionsFromJson("strategy " + parts.strategy, method.at("strategy_options"));
  parts.planner = method.at("planner");
  parts.planner_options = OptionsFromJson("planner " + parts.planner, method.at("planner_options"));
  parts.collective = method.at("collective");
  for (const OptionSpec& spec : SendingOptions()) {
    if (!method.contains(spec.name)) continue;
    parts.sending.merge(OptionsFromJson("method_options", {{spec.name, method.at(spec.name)}}));
  }
  const std::string sparsifier = config.at("sparsifier");
  if (sparsifier != "none") {
    parts.sparsifier = &ResolveSparsifier(sparsifier);
    const std::string owner = "sparsifier " + sparsifier;
    const Options given = OptionsFromJson(owner, config.at("sparsifier_options"));
    parts.sparsifier_options = IsPythonSparsifier(sparsifier)  // its constructor checks them
                                   ? given
                                   : ResolveOptions(owner, parts.sparsifier->options, given);
    parts.density = config.at("density");
  }
  parts.feedback = config.at("feedback");
  parts.feedback_options = OptionsFromJson("feedback " + parts.feedback,
                                           config.value("feedback_options", json::object()));
  return Compose(parts);
}

GradientLayout MakeLayout(std::span<const TensorShape> tensors, const json& config) {
  const json& dense = config.at("dense_tensors");
  return MakeLayout(tensors,
                    {dense.at("max_ndim"), dense.at("names").get<std::vector<std::string>>(),
                     config.value("no_feedback_tensors", std::vector<std::string>())},
                    "workload " + config.at("workload").get<std::string>());
}

}  // namespace sparfuse::harness

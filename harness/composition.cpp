#include "harness/composition.hpp"

#include <algorithm>

#include "baselines/registry.hpp"
#include "harness/method_file.hpp"
#include "harness/python_file.hpp"

namespace sparfuse {
namespace {

template <class Descriptor>
Options OptionsOf(const char* kind, const Descriptor& part, const nlohmann::json& given) {
  const std::string owner = std::string(kind) + " " + std::string(part.name);
  return ResolveOptions(owner, part.options, OptionsFromJson(owner, given));
}

PayloadCoding CodingIn(const nlohmann::json& method) {
  Options given;
  for (const OptionSpec& spec : PayloadOptions()) {
    if (method.contains(spec.name)) given[spec.name] = method.at(spec.name).get<std::string>();
  }
  const Options options = ResolveOptions("method_options", PayloadOptions(), given);
  return {StringOption(options, "payload_values") == "f16" ? ValueCoding::kF16 : ValueCoding::kF32,
          StringOption(options, "payload_indices") == "delta" ? IndexCoding::kDelta
                                                              : IndexCoding::kU32};
}

}  // namespace

Composition Compose(const nlohmann::json& config) {
  const nlohmann::json& method = config.at("method_options");
  Composition made;
  made.strategy = &FindStrategy(method.at("strategy").get<std::string>());
  made.strategy_options = OptionsOf("strategy", *made.strategy, method.at("strategy_options"));
  made.planner = &FindPlanner(method.at("planner").get<std::string>());
  made.planner_options = OptionsOf("planner", *made.planner, method.at("planner_options"));
  const Collective& collective = FindCollective(method.at("collective").get<std::string>());
  made.dense_collective = &FindCollective("ring-allreduce");
  made.sparse_collective = &FindCollective("sparse-allgather");
  (collective.payload == PayloadKind::kDense ? made.dense_collective : made.sparse_collective) =
      &collective;
  const std::string sparsifier = config.at("sparsifier");
  if (sparsifier != "none") {
    made.sparsifier = &ResolveSparsifier(sparsifier);
    made.sparsifier_options =
        IsPythonSparsifier(sparsifier)  // its constructor checks them
            ? OptionsFromJson(sparsifier, config.at("sparsifier_options"))
            : OptionsOf("sparsifier", *made.sparsifier, config.at("sparsifier_options"));
    made.coding = CodingIn(method);
    made.density = config.at("density");
    made.error_feedback = config.at("feedback") == "residual";
  }
  const auto& dense = config.at("dense_tensors");
  if (made.strategy->sparsified == Sparsified::kBehind &&
      (dense.at("max_ndim") > 0 || !dense.at("names").empty())) {
    SPARFUSE_THROW(kConfig, "dense_tensors = " + dense.dump() + " with strategy \"" +
                                std::string(made.strategy->name) +
                                "\", which selects from fused buffers: expected none");
  }
  return made;
}

GradientLayout MakeLayout(std::span<const TensorShape> tensors, const nlohmann::json& config) {
  const auto& dense = config.at("dense_tensors");
  const auto max_ndim = dense.at("max_ndim").get<std::size_t>();
  const auto names = dense.at("names").get<std::vector<std::string>>();
  std::vector<std::string> known;
  for (const TensorShape& tensor : tensors) known.push_back(tensor.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      SPARFUSE_THROW(kConfig,
                     "dense_tensors: names has \"" + name + "\", which is no tensor of workload " +
                         config.at("workload").get<std::string>() + Suggestion(name, known));
    }
  }
  GradientLayout layout;
  for (const TensorShape& tensor : tensors) {
    const bool keep = (max_ndim > 0 && tensor.shape.size() <= max_ndim) ||
                      std::find(names.begin(), names.end(), tensor.name) != names.end();
    layout.Add(tensor.name, tensor.shape, tensor.numel, keep);
  }
  return layout;
}

Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost) {
  const PlanInput input{layout,   topology, composition.density, composition.strategy->sparsified,
                        backward, cost};
  Plan plan = composition.planner->make(composition.planner_options)->MakePlan(input);
  CheckPlan(plan, layout);
  return plan;
}

}  // namespace sparfuse

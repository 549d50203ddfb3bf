#include "harness/composition.hpp"

#include <regex>

#include "baselines/registry.hpp"
#include "core/sparsify/reused_threshold.hpp"
#include "harness/method_file.hpp"
#include "harness/python_file.hpp"

namespace sparfuse {
namespace {

template <class Descriptor>
Options OptionsOf(const char* kind, const Descriptor& part, const nlohmann::json& given) {
  const std::string owner = std::string(kind) + " " + std::string(part.name);
  return ResolveOptions(owner, part.options, OptionsFromJson(owner, given));
}

Options SendingIn(const nlohmann::json& method) {
  Options given;
  for (const OptionSpec& spec : SendingOptions()) {
    if (method.contains(spec.name)) {
      given.merge(OptionsFromJson("method_options", {{spec.name, method.at(spec.name)}}));
    }
  }
  return ResolveOptions("method_options", SendingOptions(), given);
}

PayloadCoding CodingOf(const Options& sending) {
  return {StringOption(sending, "payload_values") == "f16" ? ValueCoding::kF16 : ValueCoding::kF32,
          StringOption(sending, "payload_indices") == "delta" ? IndexCoding::kDelta
                                                              : IndexCoding::kU32};
}

// The tensors that a name means: the one of that name, or those in which it is found as a regular
// expression.
std::vector<std::size_t> TensorsNamed(const std::string& name, std::span<const TensorShape> tensors,
                                      const std::string& key, const nlohmann::json& config) {
  std::vector<std::size_t> found;
  std::vector<std::string> known;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (tensors[t].name == name) return {t};
    known.push_back(tensors[t].name);
  }
  const std::string what = key + " has \"" + name + "\"";
  try {
    const std::regex pattern(name);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (std::regex_search(tensors[t].name, pattern)) found.push_back(t);
    }
  } catch (const std::regex_error& error) {
    SPARFUSE_THROW(kConfig, what + ", which is no regular expression: " + error.what());
  }
  if (found.empty()) {
    SPARFUSE_THROW(kConfig, what + ", which is no tensor of workload " +
                                config.at("workload").get<std::string>() + Suggestion(name, known));
  }
  return found;
}

}  // namespace

std::unique_ptr<Sparsifier> Composition::MakeSparsifier(std::uint64_t seed) const {
  if (sparsifier == nullptr) return nullptr;
  return ReuseThreshold(sparsifier->make(sparsifier_options, seed), threshold_period);
}

std::unique_ptr<Quantizer> Composition::MakeRuns(std::uint64_t seed) const {
  const std::string& name = StringOption(sending, "payload_dense");
  if (name == "indexed") return nullptr;
  const QuantizerDescriptor& quantizer = FindQuantizer(name);
  return quantizer.make(ResolveOptions("quantizer " + name, quantizer.options, {}), seed);
}

bool Composition::needs_profile() const {
  return planner->needs_profile != nullptr && planner->needs_profile(planner_options);
}

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
  made.sending = SendingIn(method);
  made.coding = CodingOf(made.sending);
  if (IntOption(made.sending, "replan_every") > 0 && !made.needs_profile()) {
    SPARFUSE_THROW(kConfig, "replan_every = " +
                                std::to_string(IntOption(made.sending, "replan_every")) +
                                " with planner \"" + std::string(made.planner->name) +
                                "\", which looks at no times with these options: expected 0");
  }
  const std::string sparsifier = config.at("sparsifier");
  if (sparsifier != "none") {
    made.sparsifier = &ResolveSparsifier(sparsifier);
    made.sparsifier_options =
        IsPythonSparsifier(sparsifier)  // its constructor checks them
            ? OptionsFromJson(sparsifier, config.at("sparsifier_options"))
            : OptionsOf("sparsifier", *made.sparsifier, config.at("sparsifier_options"));
    made.density = config.at("density");
    made.threshold_period = ThresholdPeriod(
        *made.sparsifier, static_cast<int>(IntOption(made.sending, "threshold_period")));
  }
  const std::string feedback = config.at("feedback");
  made.feedback = MakeFeedback(
      feedback,
      ResolveOptions("feedback " + feedback, FeedbackOptions(feedback),
                     OptionsFromJson("feedback_options",
                                     config.value("feedback_options", nlohmann::json::object()))));
  const auto& dense = config.at("dense_tensors");
  const auto lossy = config.value("no_feedback_tensors", nlohmann::json::array());
  if (made.strategy->sparsified == Sparsified::kBehind &&
      (dense.at("max_ndim") > 0 || !dense.at("names").empty() || !lossy.empty())) {
    SPARFUSE_THROW(kConfig, "dense_tensors = " + dense.dump() + ", no_feedback_tensors = " +
                                lossy.dump() + " with strategy \"" +
                                std::string(made.strategy->name) +
                                "\", which selects from fused buffers: expected none");
  }
  return made;
}

GradientLayout MakeLayout(std::span<const TensorShape> tensors, const nlohmann::json& config) {
  const auto& dense_tensors = config.at("dense_tensors");
  const auto max_ndim = dense_tensors.at("max_ndim").get<std::size_t>();
  std::vector<bool> dense(tensors.size());
  std::vector<bool> feedback(tensors.size(), true);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    dense[t] = max_ndim > 0 && tensors[t].shape.size() <= max_ndim;
  }
  for (const std::string name : dense_tensors.at("names")) {
    for (const std::size_t t : TensorsNamed(name, tensors, "dense_tensors: names", config)) {
      dense[t] = true;
    }
  }
  for (const std::string name : config.value("no_feedback_tensors", nlohmann::json::array())) {
    for (const std::size_t t : TensorsNamed(name, tensors, "no_feedback_tensors", config)) {
      feedback[t] = false;
    }
  }
  GradientLayout layout;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    layout.Add(tensors[t].name, tensors[t].shape, tensors[t].numel, dense[t], feedback[t]);
  }
  return layout;
}

Plan MakePlan(const Composition& composition, const GradientLayout& layout,
              const Topology& topology, const BackwardProfile* backward, const CostModel* cost) {
  PlanInput input{layout,   topology, composition.density, composition.strategy->sparsified,
                  backward, cost};
  if (composition.sparsifier != nullptr) input.sparsifier = composition.sparsifier->name;
  input.dense_collective = composition.dense_collective;
  input.sparse_collective = composition.sparse_collective;
  Plan plan = composition.planner->make(composition.planner_options)->MakePlan(input);
  CheckPlan(plan, layout);
  return plan;
}

}  // namespace sparfuse

#include "harness/catalog/trial_composition.hpp"

#include <cstdint>
#include <optional>
#include <variant>

#include "baselines/registry.hpp"
#include "harness/catalog/outside_part.hpp"
#include "workloads/models/layers.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::harness {

namespace {

// Nothing where there is no recipe: of a method that belongs to no cell.
std::optional<std::size_t> MomentsUsed(const Options& recipe) {
  const auto optimizer = recipe.find("optimizer"), momentum = recipe.find("momentum");
  if (optimizer == recipe.end() || momentum == recipe.end()) return std::nullopt;
  const auto* const whole = std::get_if<std::int64_t>(&momentum->second);  // as files may say it
  return workloads::MomentsUsed(
      StringOption(recipe, "optimizer"),
      whole != nullptr ? static_cast<double>(*whole) : DoubleOption(recipe, "momentum"));
}

}  // namespace

Composition Compose(const CellConfig& config) {
  const MethodChoice& method = config.method_options;
  MethodParts parts;
  parts.strategy = method.strategy;
  parts.strategy_options = method.strategy_options;
  parts.planner = method.planner;
  parts.planner_options = method.planner_options;
  parts.collective = method.collective;
  parts.collective_options = method.collective_options;
  parts.sending = method.sending;
  if (config.sparsifier != "none") {
    parts.sparsifier = &ResolveSparsifier(config.sparsifier);
    parts.sparsifier_options =
        IsPythonPart(config.sparsifier)  // its constructor checks them
            ? config.sparsifier_options
            : ResolveOptions("sparsifier " + config.sparsifier, parts.sparsifier->options,
                             config.sparsifier_options);
    parts.density = config.density;
  }
  parts.feedback = config.feedback;
  parts.feedback_options = config.feedback_options;
  parts.inner_arrays = MomentsUsed(config.recipe);
  return Compose(parts);
}

int DenseWarmupSteps(const CellConfig& config) {
  return config.is_profile() ? 0 : static_cast<int>(Compose(config).dense_warmup_steps);
}

GradientLayout MakeLayout(std::span<const TensorShape> tensors, const CellConfig& config) {
  TensorChoice choice;
  choice.max_ndim = static_cast<std::size_t>(config.dense_tensors.max_ndim);
  choice.dense = config.dense_tensors.names;
  choice.without_feedback = config.no_feedback_tensors;
  choice.dense_apart =
      !config.is_profile() &&
      FindStrategy(config.method_options.strategy).sparsified == Sparsified::kBehind;
  return MakeLayout(tensors, choice, "workload " + config.workload);
}

GradientLayout CatalogLayout(const CellConfig& config) {
  std::vector<TensorShape> tensors;
  for (const workloads::LayerTensor& tensor : workloads::LayersOf(config.workload).tensors)
    tensors.push_back({tensor.name, tensor.shape, tensor.numel});
  return MakeLayout(tensors, config);
}

}  // namespace sparfuse::harness

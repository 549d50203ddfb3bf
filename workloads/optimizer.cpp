#include "workloads/optimizer.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>

namespace sparfuse {
namespace {

constexpr double kAdamEpsilon = 1e-8;
constexpr double kCosineFloor = 0.05;  // of the full rate

}  // namespace

std::vector<OptionSpec> RecipeOptions(const Recipe& defaults) {
  return {
      {"optimizer", defaults.optimizer, 0, 0, {"sgd", "adam"}, "how parameters are updated"},
      {"learning_rate",
       defaults.learning_rate,
       0,
       100,
       {},
       "learning rate after warm-up, not scaled with the number of workers"},
      {"momentum", defaults.momentum, 0, 0.9999, {}, "momentum of sgd, beta1 of adam"},
      {"beta2", defaults.beta2, 0, 0.99999, {}, "decay of adam's second moment; sgd ignores it"},
      {"weight_decay",
       defaults.weight_decay,
       0,
       1,
       {},
       "added to the gradient (sgd) or decoupled (adam), for every parameter"},
      {"warmup_steps",
       static_cast<std::int64_t>(defaults.warmup_steps),
       0,
       1e6,
       {},
       "steps over which the learning rate rises linearly"},
      {"schedule",
       defaults.schedule,
       0,
       0,
       {"constant", "cosine", "linear", "staircase"},
       "learning rate after warm-up: cosine falls to a twentieth at the trial's last step, linear "
       "to nothing, staircase to a tenth after 3/8 of the steps and a hundredth after 3/4"},
  };
}

Recipe RecipeFrom(const Options& options) {
  Recipe recipe;
  recipe.optimizer = StringOption(options, "optimizer");
  recipe.learning_rate = DoubleOption(options, "learning_rate");
  recipe.momentum = DoubleOption(options, "momentum");
  recipe.beta2 = DoubleOption(options, "beta2");
  recipe.weight_decay = DoubleOption(options, "weight_decay");
  recipe.warmup_steps = static_cast<std::uint64_t>(IntOption(options, "warmup_steps"));
  recipe.schedule = StringOption(options, "schedule");
  return recipe;
}

double LearningRate(const Recipe& recipe, std::uint64_t step, std::uint64_t total_steps) {
  if (step < recipe.warmup_steps) {
    return recipe.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(recipe.warmup_steps);
  }
  if (recipe.schedule == "constant" || total_steps <= recipe.warmup_steps) {
    return recipe.learning_rate;
  }
  if (recipe.schedule == "staircase") {
    if (8 * step < 3 * total_steps) return recipe.learning_rate;
    return recipe.learning_rate * (4 * step < 3 * total_steps ? 0.1 : 0.01);
  }
  const double progress = std::min(1.0, static_cast<double>(step - recipe.warmup_steps) /
                                            static_cast<double>(total_steps - recipe.warmup_steps));
  if (recipe.schedule == "linear") return recipe.learning_rate * (1.0 - progress);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return recipe.learning_rate * (kCosineFloor + (1.0 - kCosineFloor) * cosine);
}

Optimizer::Optimizer(Recipe recipe, std::size_t numel)
    : recipe_(std::move(recipe)),
      first_(numel, 0.0f),
      second_(recipe_.optimizer == "adam" ? numel : 0, 0.0f) {}

void Optimizer::Step(std::span<float> parameters, std::size_t offset,
                     std::span<const float> gradient, std::uint64_t step, double learning_rate) {
  assert(parameters.size() == first_.size() && offset + gradient.size() <= parameters.size());
  float* __restrict parameter = parameters.data() + offset;
  float* __restrict first = first_.data() + offset;
  const float* __restrict g = gradient.data();
  const std::size_t n = gradient.size();
  const auto beta1 = static_cast<float>(recipe_.momentum);
  if (second_.empty()) {
    const auto rate = static_cast<float>(learning_rate);
    const auto decay = static_cast<float>(recipe_.weight_decay);
    for (std::size_t i = 0; i < n; ++i) {
      first[i] = beta1 * first[i] + (g[i] + decay * parameter[i]);
      parameter[i] -= rate * first[i];
    }
    return;
  }
  float* __restrict second = second_.data() + offset;
  const auto updates = static_cast<double>(step + 1);
  const double correction1 = 1.0 - std::pow(recipe_.momentum, updates);
  const double correction2 = 1.0 - std::pow(recipe_.beta2, updates);
  const auto rate = static_cast<float>(learning_rate / correction1);
  const auto keep = static_cast<float>(1.0 - learning_rate * recipe_.weight_decay);
  const auto root = static_cast<float>(1.0 / std::sqrt(correction2));
  const auto beta2 = static_cast<float>(recipe_.beta2);
  const auto epsilon = static_cast<float>(kAdamEpsilon);
  for (std::size_t i = 0; i < n; ++i) {
    first[i] = beta1 * first[i] + (1.0f - beta1) * g[i];
    second[i] = beta2 * second[i] + (1.0f - beta2) * (g[i] * g[i]);
    parameter[i] = keep * parameter[i] - rate * first[i] / (std::sqrt(second[i]) * root + epsilon);
  }
}

std::vector<std::span<float>> Optimizer::State() {
  std::vector<std::span<float>> state{first_};
  if (!second_.empty()) state.emplace_back(second_);
  return state;
}

}  // namespace sparfuse

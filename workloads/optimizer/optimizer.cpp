#include "workloads/optimizer/optimizer.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/device/launch.hpp"
#include "workloads/optimizer/optimizer_kernel.hpp"

namespace sparfuse::workloads {
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

Optimizer::Optimizer(Recipe recipe, std::size_t numel, const Stream& stream)
    : recipe_(std::move(recipe)),
      stream_(stream),
      first_(numel, stream.device, "the optimizer's state"),
      second_(recipe_.optimizer == "adam" ? numel : 0, stream.device, "the optimizer's state") {}

template <class Rule>
void Optimizer::Apply(const Rule& rule, float* parameters, std::span<const Part> parts) {
  float* const second = second_.data();
  if (stream_.device.kind == DeviceKind::kHost) {
    for (const Part& part : parts) {
      float* __restrict p = parameters + part.offset;
      float* __restrict m = first_.data() + part.offset;
      float* __restrict v = second == nullptr ? nullptr : second + part.offset;
      const float* __restrict g = part.gradient;
      for (std::size_t i = 0; i < part.size; ++i)
        rule(g[i], p[i], m[i], v == nullptr ? nullptr : v + i);
    }
    return;
  }
  using Kernel = OptimizerKernel<Rule>;
  Kernel kernel{rule, parameters, first_.data(), second, 0, {}};
  std::uint32_t blocks = 0;
  const auto launch = [&] {
    gpu::Launch(stream_, blocks, kernel);
    kernel.parts_used = 0;
    blocks = 0;
  };
  for (const Part& part : parts) {
    if (part.size == 0) continue;
    kernel.parts[kernel.parts_used++] = {part.gradient, part.offset, part.size, blocks};
    blocks += static_cast<std::uint32_t>((part.size + Kernel::kElements - 1) / Kernel::kElements);
    if (kernel.parts_used == Kernel::kParts) launch();
  }
  launch();
}

void Optimizer::Step(float* parameters, std::span<const Part> parts, std::uint64_t step,
                     double learning_rate) {
  const auto beta1 = static_cast<float>(recipe_.momentum);
  if (recipe_.optimizer != "adam") {
    const SgdRule sgd{beta1, static_cast<float>(learning_rate),
                      static_cast<float>(recipe_.weight_decay)};
    return Apply(sgd, parameters, parts);
  }
  const auto updates = static_cast<double>(step + 1);
  const double correction1 = 1.0 - std::pow(recipe_.momentum, updates);
  const double correction2 = 1.0 - std::pow(recipe_.beta2, updates);
  AdamRule adam;
  adam.beta1 = beta1;
  adam.beta2 = static_cast<float>(recipe_.beta2);
  adam.rate = static_cast<float>(learning_rate / correction1);
  adam.keep = static_cast<float>(1.0 - learning_rate * recipe_.weight_decay);
  adam.root = static_cast<float>(1.0 / std::sqrt(correction2));
  adam.epsilon = static_cast<float>(kAdamEpsilon);
  Apply(adam, parameters, parts);
}

void Optimizer::Step(std::span<float> parameters, std::size_t offset,
                     std::span<const float> gradient, std::uint64_t step, double learning_rate) {
  assert(parameters.size() == first_.size() && offset + gradient.size() <= parameters.size());
  const Part part{offset, gradient.size(), gradient.data()};
  Step(parameters.data(), std::span(&part, 1), step, learning_rate);
}

std::vector<DeviceSpan<float>> Optimizer::DeviceState() {
  std::vector<DeviceSpan<float>> state;
  for (Buffer<float>* part : {&first_, &second_}) {
    if (part->size() > 0) state.push_back({part->data(), part->size(), stream_});
  }
  return state;
}

std::vector<std::span<float>> Optimizer::State() {
  std::vector<std::span<float>> state;
  for (const DeviceSpan<float>& part : DeviceState()) state.push_back(part.host());
  return state;
}

}  // namespace sparfuse::workloads

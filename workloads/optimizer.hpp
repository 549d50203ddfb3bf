// Optimizers over flat host memory, and their learning-rate schedule. No LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/options.hpp"

namespace sparfuse {

// How a workload is trained; read from a workload's options of the same names.
struct Recipe {
  std::string optimizer;     // "sgd": with momentum, weight decay added to the gradient;
                             // "adam": with decoupled weight decay
  double learning_rate = 0;  // at the end of the warm-up, whatever the number of workers
  double momentum = 0;       // sgd: momentum; adam: beta1
  double beta2 = 0;          // adam only
  double weight_decay = 0;
  std::uint64_t warmup_steps = 0;  // the rate rises linearly over these steps
  // After warm-up: "constant"; "cosine" down to a twentieth; "linear" down to nothing; "staircase":
  // a tenth from 3/8 of all steps on, a hundredth from 3/4 on.
  std::string schedule;
};

// The options that a recipe takes, with `defaults` as defaults.
std::vector<OptionSpec> RecipeOptions(const Recipe& defaults);
// Precondition: `options` are resolved against RecipeOptions.
Recipe RecipeFrom(const Options& options);

// The learning rate at `step` (0-based) of `total_steps`; total_steps = 0 means that the end is not
// known, and all schedules then stay at learning_rate.
double LearningRate(const Recipe& recipe, std::uint64_t step, std::uint64_t total_steps);

// State of an optimizer over a flat parameter array. It exists, as zeros, from construction, so
// that it can be broadcast and compared at any time.
class Optimizer {
 public:
  Optimizer(Recipe recipe, std::size_t numel);

  // Updates the elements [offset, offset + gradient.size()) of `parameters` (the whole flat array,
  // [numel]) with the averaged `gradient`, as update number `step` (0-based). Parts that get no
  // gradient at a step keep parameters and state. Deterministic bit for bit.
  void Step(std::span<float> parameters, std::size_t offset, std::span<const float> gradient,
            std::uint64_t step, double learning_rate);

  // Each [numel]: the momentum; for adam the first and the second moment.
  std::vector<std::span<float>> State();

 private:
  Recipe recipe_;
  std::vector<float> first_;
  std::vector<float> second_;  // empty for sgd
};

}  // namespace sparfuse

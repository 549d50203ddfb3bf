// Declares optimizers over flat memory of a device, and their learning-rate schedule. No LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/options.hpp"
#include "core/device/device.hpp"

namespace sparfuse::workloads {

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
  // An averaged gradient: [size], on the device, of the elements [offset, offset + size).
  struct Part {
    std::size_t offset = 0;
    std::size_t size = 0;
    const float* gradient = nullptr;
  };

  // The state is on the stream's device.
  Optimizer(Recipe recipe, std::size_t numel, const Stream& stream = {});

  // Updates these parts, which do not overlap, of `parameters` (the whole flat array, [numel], on
  // the device) as update number `step` (0-based). Parts that get no gradient at a step keep
  // parameters and state. Deterministic bit for bit, and the same on every device. On a device:
  // returns when the work is in the stream.
  void Step(float* parameters, std::span<const Part> parts, std::uint64_t step,
            double learning_rate);
  // The same of one part, on the host.
  void Step(std::span<float> parameters, std::size_t offset, std::span<const float> gradient,
            std::uint64_t step, double learning_rate);

  // Each [numel]: the momentum; for adam the first and the second moment.
  std::vector<DeviceSpan<float>> DeviceState();
  std::vector<std::span<float>> State();  // where it is on the host

 private:
  template <class Rule>
  void Apply(const Rule& rule, float* parameters, std::span<const Part> parts);

  Recipe recipe_;
  Stream stream_;
  Buffer<float> first_;
  Buffer<float> second_;  // empty for sgd
};

}  // namespace sparfuse::workloads

// Declares optimizers over flat memory of a device, and their learning-rate schedule. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/device/device.hpp"

namespace sparfuse::workloads {

// The training of a workload, read from its options of the same names. RecipeOptions gives their
// meaning.
struct Recipe {
  std::string optimizer;
  double learning_rate = 0;
  double momentum = 0;  // sgd and muon: momentum; adam: beta1
  double beta2 = 0;
  double weight_decay = 0;
  std::uint64_t warmup_steps = 0;
  std::string schedule;

  bool learning_rate_per_worker = false;
  std::string warmup_from = "first-step";
  double warmup_epochs = 0;
  double warmup_fraction = 0;
  double epochs = 0;
  std::string boundaries = "";
  double decay_factor = 0.1;
  std::int64_t patience = 3;
  std::string schedule_span = "trial";
  std::string no_decay = "";
  double clip_norm = 0;
  std::string clip = "global";
  std::string remainder = "drop";
  std::string initial_values = "own";
  double attention_dropout = 0;
  std::string augmentation = "by-size";
  std::string metric_form = "samples";
  std::string state = "zero";
};

// The options that a recipe takes, with `defaults` as defaults.
std::vector<OptionSpec> RecipeOptions(const Recipe& defaults);
// Precondition: `options` are resolved against RecipeOptions. Throws Error{kConfig} for boundaries
// that are no rising list of epochs, and for no_decay that is no regular expression.
Recipe RecipeFrom(const Options& options);

// The length of epochs and the number of workers in the trial that uses a recipe.
struct Course {
  std::uint64_t total_steps = 0;  // 0: the end is not known, and rates that fall towards it do not
  double steps_per_epoch = 0;     // 0: not known; keys in epochs then have no effect
  int workers = 1;
};

// The steps that a recipe's epochs take, to the next whole one; 0 if it has none.
std::uint64_t StepsOf(const Recipe& recipe, double steps_per_epoch);

// The number of arrays, each of the parameters' size, that the optimizer keeps between updates and
// uses: 2 for adam and muon, 1 for sgd with momentum, 0 for the others. From a recipe's options.
std::size_t MomentsUsed(std::string_view optimizer, double momentum);

// The learning rate at `step` (0-based), without the factor of a plateau.
double LearningRate(const Recipe& recipe, std::uint64_t step, const Course& course);

// The factor of schedule "plateau". It is multiplied by decay_factor when the loss has not fallen
// by a ten-thousandth below its least for more than `patience` evaluations in a row, as PyTorch's
// ReduceLROnPlateau counts.
class Plateau {
 public:
  explicit Plateau(const Recipe& recipe)
      : active_(recipe.schedule == "plateau"),
        patience_(recipe.patience),
        decay_(recipe.decay_factor) {}
  void Observe(double loss);
  double factor() const noexcept { return factor_; }

 private:
  bool active_ = false;
  std::int64_t patience_ = 0;
  double decay_ = 1;
  double factor_ = 1;
  double least_ = std::numeric_limits<double>::infinity();
  std::int64_t bad_ = 0;  // evaluations in a row
};

// The factors for gradients of these norms (L2, of whole tensors): 1 if the recipe does not clip or
// the norm is within clip_norm.
std::vector<float> ClipFactors(const Recipe& recipe, std::span<const double> norms);

// State of an optimizer over a flat parameter array. It exists, as zeros, from construction, so
// that it can be broadcast and compared at any time.
class Optimizer {
 public:
  // An averaged gradient: [size], on the device, of the elements [offset, offset + size).
  struct Part {
    std::size_t offset = 0;
    std::size_t size = 0;
    const float* gradient = nullptr;
    float factor = 1;      // of the gradient
    bool decays = true;    // takes part in weight decay
    std::size_t rows = 0;  // of a matrix, row-major, for muon; 0: a parameter of other dimensions
    // The update before which its state was zero; adam's corrections count updates from it.
    std::uint64_t since = 0;
  };

  // The state is on the stream's device. Throws Error{kConfig} for muon on a device.
  Optimizer(Recipe recipe, std::size_t numel, const Stream& stream = {});

  // Updates these parts, which do not overlap, of `parameters` (the whole flat array, [numel], on
  // the device) as update number `step` (0-based). Parts that get no gradient at a step keep
  // parameters and state. Deterministic bit for bit, and the same on every device. On a device:
  // returns when the work is in the stream.
  void Step(float* parameters, std::span<const Part> parts, std::uint64_t step,
            double learning_rate);

  // Each [numel]: the momentum; for adam the first and the second moment, of which muon has the
  // first alone of a matrix; for sign nothing.
  std::vector<DeviceSpan<float>> DeviceState();

 private:
  template <class Rule>
  void Apply(const Rule& rule, float* parameters, std::span<const Part> parts);
  // Muon's update of a matrix.
  void StepMatrix(double weight_decay, float* parameters, const Part& part, double learning_rate);
  void StepWith(double weight_decay, float* parameters, std::span<const Part> parts,
                std::uint64_t step, double learning_rate);

  Recipe recipe_;
  Stream stream_;
  Buffer<float> first_;   // empty for sign
  Buffer<float> second_;  // and for sgd
};

// Makes a matrix nearly orthogonal: its singular values come close to 1.
// Five steps of a quintic Newton-Schulz iteration, X <- a X + (b A + c A^2) X with A = X X', from X
// over its Frobenius norm + 1e-7. Singular values above a two-hundredth of the norm end between
// 0.97 and 1.12. x: [rows * cols], row-major. Deterministic, the same bits with every instruction
// set.
//
// Source: K. Jordan et al., Muon, 2024; coefficients of the five steps: K. Ahn et al., Dion, arXiv
//         2504.05295.
void Orthogonalise(std::span<float> x, std::size_t rows, std::size_t cols);

}  // namespace sparfuse::workloads

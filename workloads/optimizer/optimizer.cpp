#include "workloads/optimizer/optimizer.hpp"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "core/coding/quantizers/matrix_product.hpp"
#include "core/device/launch.hpp"
#include "workloads/optimizer/optimizer_kernel.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kAdamEpsilon = 1e-8;
constexpr double kBertAdamEpsilon = 1e-6;
constexpr double kCosineFloor = 0.05;  // fraction of the full rate

// Epochs in rising order, all above 0.
std::vector<double> BoundariesOf(const std::string& text) {
  std::vector<double> epochs;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.back() == ',') word.pop_back();
    double epoch = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), epoch);
    const bool number = error == std::errc() && end == word.data() + word.size();
    if (!number || epoch <= (epochs.empty() ? 0 : epochs.back())) {
      SPARFUSE_THROW(kConfig, "recipe: boundaries = \"" + text +
                                  "\": expected rising epochs above 0, such as \"30 60\"");
    }
    epochs.push_back(epoch);
  }
  return epochs;
}

double WarmupStepsOf(const Recipe& recipe, const Course& course, double total) {
  if (recipe.warmup_fraction > 0) return recipe.warmup_fraction * total;
  if (recipe.warmup_epochs > 0) return recipe.warmup_epochs * course.steps_per_epoch;
  return static_cast<double>(recipe.warmup_steps);
}

// The remaining fraction of the full rate after the warm-up.
double PartLeft(const Recipe& recipe, double step, double warmup, double total,
                const Course& course) {
  if (recipe.schedule == "steps" || recipe.schedule == "exponential") {
    if (course.steps_per_epoch <= 0) return 1;
    if (recipe.schedule == "exponential")
      return std::pow(recipe.decay_factor, std::floor(step / course.steps_per_epoch));
    double left = 1;
    for (const double epoch : BoundariesOf(recipe.boundaries)) {
      if (step >= epoch * course.steps_per_epoch) left *= recipe.decay_factor;
    }
    return left;
  }
  if (recipe.schedule == "constant" || recipe.schedule == "plateau" || total <= warmup) return 1;
  if (recipe.schedule == "staircase") {
    return 8 * step < 3 * total ? 1 : 4 * step < 3 * total ? 0.1 : 0.01;
  }
  const double progress = std::min(1.0, (step - warmup) / (total - warmup));
  if (recipe.schedule == "linear") return 1.0 - progress;
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return kCosineFloor + (1.0 - kCosineFloor) * cosine;
}

// The number of the optimizer's arrays that are as large as the parameters.
std::size_t Moments(std::string_view optimizer) {
  return optimizer == "sign" ? 0 : optimizer == "sgd" ? 1 : 2;
}

struct QuinticStep {
  float a, b, c;
};
constexpr QuinticStep kQuinticSteps[] = {{4.0848f, -6.8946f, 2.9270f},
                                         {3.9505f, -6.3029f, 2.6377f},
                                         {3.7418f, -5.5913f, 2.3037f},
                                         {2.8769f, -3.1427f, 1.2046f},
                                         {2.8366f, -3.0525f, 1.2012f}};

// Row-major.
struct Matrix {
  Matrix(std::size_t height, std::size_t width)
      : rows(height), cols(width), values(height * width) {}
  std::size_t rows, cols;
  std::vector<float> values;
};

void Transpose(const float* from, std::size_t rows, std::size_t cols, float* to) {
  constexpr std::size_t kTile = 16;  // both sides stay in cache
  for (std::size_t first = 0; first < rows; first += kTile) {
    const std::size_t last = std::min(rows, first + kTile);
    for (std::size_t j = 0; j < cols; ++j) {
      for (std::size_t i = first; i < last; ++i) to[j * rows + i] = from[i * cols + j];
    }
  }
}

void Product(const Matrix& left, const Matrix& right, Matrix& to) {
  assert(left.cols == right.rows && to.rows == left.rows && to.cols == right.cols);
  Multiply({left.values.data(), left.cols}, {right.values.data(), right.cols}, left.rows, left.cols,
           right.cols, {to.values.data(), to.cols});
}

}  // namespace

void Orthogonalise(std::span<float> x, std::size_t rows, std::size_t cols) {
  assert(x.size() == rows * cols);
  if (x.empty()) return;
  const bool wide = rows <= cols;  // A has the smaller side
  Matrix own(std::min(rows, cols), std::max(rows, cols));
  if (wide) {
    std::ranges::copy(x, own.values.begin());
  } else {
    Transpose(x.data(), rows, cols, own.values.data());
  }
  double squares = 0;
  for (const float value : own.values) squares += static_cast<double>(value) * value;
  const auto scale = static_cast<float>(1 / (std::sqrt(squares) + 1e-7));
  for (float& value : own.values) value *= scale;

  Matrix transposed(own.cols, own.rows), gram(own.rows, own.rows), square(own.rows, own.rows);
  Matrix product(own.rows, own.cols);
  for (const QuinticStep& step : kQuinticSteps) {
    Transpose(own.values.data(), own.rows, own.cols, transposed.values.data());
    Product(own, transposed, gram);
    Product(gram, gram, square);
    for (std::size_t i = 0; i < gram.values.size(); ++i)
      gram.values[i] = step.b * gram.values[i] + step.c * square.values[i];
    Product(gram, own, product);
    for (std::size_t i = 0; i < own.values.size(); ++i)
      own.values[i] = step.a * own.values[i] + product.values[i];
  }
  if (wide) {
    std::ranges::copy(own.values, x.begin());
  } else {
    Transpose(own.values.data(), own.rows, own.cols, x.data());
  }
}

std::vector<OptionSpec> RecipeOptions(const Recipe& defaults) {
  return {
      ChoiceOption(
          "optimizer", defaults.optimizer, {"sgd", "adam", "adam-l2", "bert-adam", "sign", "muon"},
          "how parameters are updated: sgd with momentum; adam with decoupled decay "
          "(AdamW); adam-l2 with decay added to the gradient (torch.optim.Adam); "
          "bert-adam: adam without bias correction and with epsilon 1e-6; sign: by the "
          "sign of the gradient, with decoupled decay, as DeMo does; muon: matrices by their "
          "momentum made orthogonal (times 0.2 and the root of the longer side, so that "
          "one rate serves all), other parameters by adam; on the host"),
      NumberOption("learning_rate", defaults.learning_rate, 0, 100,
                   "learning rate after warm-up, not scaled with the number of workers unless "
                   "learning_rate_per_worker"),
      NumberOption("momentum", defaults.momentum, 0, 0.9999,
                   "momentum of sgd and muon, beta1 of adam; sign ignores it"),
      NumberOption("beta2", defaults.beta2, 0, 0.99999,
                   "decay of adam's second moment; sgd and sign ignore it"),
      NumberOption("weight_decay", defaults.weight_decay, 0, 1,
                   "added to the gradient (sgd, adam-l2) or decoupled (the others), for "
                   "every parameter that no_decay does not name"),
      WholeOption("warmup_steps", static_cast<std::int64_t>(defaults.warmup_steps), 0, 1e6,
                  "steps over which the learning rate rises linearly"),
      ChoiceOption("schedule", defaults.schedule,
                   {"constant", "cosine", "linear", "staircase", "steps", "exponential", "plateau",
                    "inverse-sqrt"},
                   "learning rate after warm-up: cosine falls to a twentieth at the trial's last "
                   "step, linear to nothing, staircase to a tenth after 3/8 of the steps and a "
                   "hundredth after 3/4; steps by decay_factor at each of `boundaries`, "
                   "exponential at each epoch, plateau when the loss of evaluations stops falling; "
                   "inverse-sqrt with the root of the step"),
      FlagOption("learning_rate_per_worker", defaults.learning_rate_per_worker,
                 "learning_rate is of one worker and is multiplied by their number"),
      ChoiceOption("warmup_from", defaults.warmup_from, {"first-step", "zero", "one-worker"},
                   "start of the warm-up: its first step has the first part of the rise, or the "
                   "rate 0, or one worker's share of the rate"),
      NumberOption("warmup_epochs", defaults.warmup_epochs, 0, 1000,
                   "length of the warm-up in epochs; if above 0, it replaces warmup_steps"),
      NumberOption(
          "warmup_fraction", defaults.warmup_fraction, 0, 1,
          "length of the warm-up as a fraction of all steps; if above 0, it replaces warmup_steps"),
      NumberOption("epochs", defaults.epochs, 0, 100000,
                   "length of a convergence trial without `steps`; 0: none"),
      TextOption("boundaries", defaults.boundaries,
                 "with schedule steps: epochs at which the rate falls, \"30 60\""),
      NumberOption("decay_factor", defaults.decay_factor, 0, 1,
                   "with schedules steps, exponential and plateau: factor of the rate"),
      WholeOption("patience", defaults.patience, 0, 1000,
                  "with schedule plateau: evaluations without a lower loss before the rate falls"),
      ChoiceOption("schedule_span", defaults.schedule_span, {"trial", "shipped"},
                   "end of falling schedules: the trial's end, or that times the number of "
                   "workers, as the published BERT program does by mistake"),
      TextOption("no_decay", defaults.no_decay,
                 "regular expression; parameters whose names it matches have no weight decay; "
                 "empty: all decay"),
      NumberOption("clip_norm", defaults.clip_norm, 0, 1e9,
                   "the averaged gradient is scaled down to this L2 norm; 0: never"),
      ChoiceOption("clip", defaults.clip, {"global", "tensor"},
                   "clip_norm limits all gradients together, or each tensor by itself"),
      ChoiceOption("remainder", defaults.remainder, {"drop", "wrap"},
                   "samples left over at the end of an epoch: dropped, or a smaller step, which "
                   "the epoch's first samples fill up to the number of workers"),
      ChoiceOption(
          "initial_values", defaults.initial_values, {"own", "published"},
          "distribution of initial parameters: ours, or the distribution of the papers' programs"),
      NumberOption(
          "attention_dropout", defaults.attention_dropout, 0, 0.99,
          "for BERT, GPT and transformers: fraction of the attention weights that is dropped"),
      ChoiceOption("augmentation", defaults.augmentation,
                   {"by-size", "none", "cifar", "cifar-rotated", "imagenet", "vit"},
                   "for prepared images: cifar pads by 4, crops and flips, cifar-rotated turns by "
                   "up to 15 degrees too; imagenet takes a random part and flips, and tests on "
                   "the centre; vit tests on the whole image squashed; by-size: cifar up to 64 "
                   "pixels, else imagenet"),
      ChoiceOption(
          "state", defaults.state, {"zero", "carried"},
          "state of recurrent layers at the beginning of a window: zero, with permuted windows, or "
          "the state at the end of the last window: the text is cut into as many columns as "
          "samples of a step, which are read from their beginning in each epoch"),
      ChoiceOption(
          "metric_form", defaults.metric_form, {"samples", "as-shipped"},
          "how prepared data is evaluated: each sample or token once, or as the published programs "
          "do, accuracy as the mean over ranks and batches, perplexity of one rank's windows"),
  };
}

Recipe RecipeFrom(const Options& options) {
  const auto count = [&](const char* name) {
    return static_cast<std::uint64_t>(IntOption(options, name));
  };
  Recipe recipe;
  recipe.optimizer = StringOption(options, "optimizer");
  recipe.learning_rate = DoubleOption(options, "learning_rate");
  recipe.momentum = DoubleOption(options, "momentum");
  recipe.beta2 = DoubleOption(options, "beta2");
  recipe.weight_decay = DoubleOption(options, "weight_decay");
  recipe.warmup_steps = count("warmup_steps");
  recipe.schedule = StringOption(options, "schedule");
  recipe.learning_rate_per_worker = BoolOption(options, "learning_rate_per_worker");
  recipe.warmup_from = StringOption(options, "warmup_from");
  recipe.warmup_epochs = DoubleOption(options, "warmup_epochs");
  recipe.warmup_fraction = DoubleOption(options, "warmup_fraction");
  recipe.epochs = DoubleOption(options, "epochs");
  recipe.boundaries = StringOption(options, "boundaries");
  recipe.decay_factor = DoubleOption(options, "decay_factor");
  recipe.patience = IntOption(options, "patience");
  recipe.schedule_span = StringOption(options, "schedule_span");
  recipe.no_decay = StringOption(options, "no_decay");
  recipe.clip_norm = DoubleOption(options, "clip_norm");
  recipe.clip = StringOption(options, "clip");
  recipe.remainder = StringOption(options, "remainder");
  recipe.initial_values = StringOption(options, "initial_values");
  recipe.attention_dropout = DoubleOption(options, "attention_dropout");
  recipe.augmentation = StringOption(options, "augmentation");
  recipe.state = StringOption(options, "state");
  recipe.metric_form = StringOption(options, "metric_form");
  BoundariesOf(recipe.boundaries);
  try {
    Expression(recipe.no_decay, "no_decay");
  } catch (const Error&) {
    SPARFUSE_THROW(kConfig, "recipe: no_decay = \"" + recipe.no_decay +
                                "\": expected a regular expression, such as \"bias|LayerNorm\"");
  }
  return recipe;
}

std::uint64_t StepsOf(const Recipe& recipe, double steps_per_epoch) {
  return static_cast<std::uint64_t>(std::ceil(recipe.epochs * steps_per_epoch));
}

double LearningRate(const Recipe& recipe, std::uint64_t step, const Course& course) {
  const auto workers = static_cast<double>(course.workers);
  const double full = recipe.learning_rate * (recipe.learning_rate_per_worker ? workers : 1);
  const double total =
      static_cast<double>(course.total_steps) * (recipe.schedule_span == "shipped" ? workers : 1);
  const double warmup = WarmupStepsOf(recipe, course, total);
  const auto at = static_cast<double>(step);
  if (recipe.schedule == "inverse-sqrt") {
    const double rise = std::max(1.0, warmup);
    return full * std::min((at + 1) / rise, std::sqrt(rise / (at + 1)));
  }
  if (at < warmup) {
    if (recipe.warmup_from == "zero") return full * at / warmup;
    if (recipe.warmup_from == "first-step") return full * (at + 1) / warmup;
    return full / workers * (1 + (workers - 1) * (at + 1) / warmup);
  }
  return full * PartLeft(recipe, at, warmup, total, course);
}

void Plateau::Observe(double loss) {
  constexpr double kThreshold = 1e-4;
  if (!active_) return;
  if (loss < least_ * (1 - kThreshold)) {
    least_ = loss;
    bad_ = 0;
  } else if (++bad_ > patience_) {
    factor_ *= decay_;
    bad_ = 0;
  }
}

std::vector<float> ClipFactors(const Recipe& recipe, std::span<const double> norms) {
  constexpr double kNotZero = 1e-6;  // torch.nn.utils.clip_grad_norm_ adds it, too
  std::vector<float> factors(norms.size(), 1.0f);
  if (recipe.clip_norm <= 0) return factors;
  const auto factor = [&](double norm) {
    return static_cast<float>(std::min(1.0, recipe.clip_norm / (norm + kNotZero)));
  };
  double squares = 0;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    factors[i] = factor(norms[i]);
    squares += norms[i] * norms[i];
  }
  if (recipe.clip == "global") std::ranges::fill(factors, factor(std::sqrt(squares)));
  return factors;
}

std::size_t MomentsUsed(std::string_view optimizer, double momentum) {
  return optimizer == "sgd" && momentum == 0 ? 0 : Moments(optimizer);
}

Optimizer::Optimizer(Recipe recipe, std::size_t numel, const Stream& stream)
    : recipe_(std::move(recipe)),
      stream_(stream),
      first_(Moments(recipe_.optimizer) > 0 ? numel : 0, stream.device, "the optimizer's state"),
      second_(Moments(recipe_.optimizer) > 1 ? numel : 0, stream.device, "the optimizer's state") {
  SPARFUSE_REQUIRE(
      recipe_.optimizer != "muon" || stream.device.kind == DeviceKind::kHost,
      "recipe: optimizer = \"muon\" on a device: expected device = \"cpu\"; its matrix "
      "products have no kernel there");
}

template <class Rule>
void Optimizer::Apply(const Rule& rule, float* parameters, std::span<const Part> parts) {
  float* const first = first_.size() > 0 ? first_.data() : nullptr;
  float* const second = second_.size() > 0 ? second_.data() : nullptr;
  if (stream_.device.kind == DeviceKind::kHost) {
    for (const Part& part : parts) {
      float* __restrict p = parameters + part.offset;
      float* __restrict m = first == nullptr ? nullptr : first + part.offset;
      float* __restrict v = second == nullptr ? nullptr : second + part.offset;
      const float* __restrict g = part.gradient;
      const float factor = part.factor;
      for (std::size_t i = 0; i < part.size; ++i)
        rule(factor * g[i], p[i], m == nullptr ? nullptr : m + i, v == nullptr ? nullptr : v + i);
    }
    return;
  }
  using Kernel = OptimizerKernel<Rule>;
  Kernel kernel{rule, parameters, first, second, 0, {}};
  std::uint32_t blocks = 0;
  const auto launch = [&] {
    gpu::Launch(stream_, blocks, kernel);
    kernel.parts_used = 0;
    blocks = 0;
  };
  for (const Part& part : parts) {
    if (part.size == 0) continue;
    kernel.parts[kernel.parts_used++] = {part.gradient, part.offset, part.size, blocks,
                                         part.factor};
    blocks += static_cast<std::uint32_t>((part.size + Kernel::kElements - 1) / Kernel::kElements);
    if (kernel.parts_used == Kernel::kParts) launch();
  }
  launch();
}

void Optimizer::Step(float* parameters, std::span<const Part> parts, std::uint64_t step,
                     double learning_rate) {
  // Updates parts together that have the same decay and the same corrections.
  const auto kind = [&](const Part& part) {
    return std::pair(recipe_.weight_decay == 0 || part.decays ? 0 : 1, part.since);
  };
  const auto update = [&](std::span<const Part> alike) {
    if (alike.empty()) return;
    StepWith(kind(alike.front()).first == 0 ? recipe_.weight_decay : 0, parameters, alike,
             step - alike.front().since, learning_rate);
  };
  const auto differs = [&](const Part& part) { return kind(part) != kind(parts.front()); };
  if (std::ranges::none_of(parts, differs)) return update(parts);
  std::vector<Part> sorted(parts.begin(), parts.end());
  std::ranges::stable_sort(sorted, {}, kind);
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto end = std::find_if(begin, sorted.end(),
                                  [&](const Part& part) { return kind(part) != kind(*begin); });
    update({begin, end});
    begin = end;
  }
}

// J. Liu et al., Muon is Scalable for LLM Training, arXiv 2502.16982, section 2.2: the factor gives
// the update of a matrix the root mean square of an update of AdamW.
void Optimizer::StepMatrix(double weight_decay, float* parameters, const Part& part,
                           double learning_rate) {
  const std::size_t cols = part.size / part.rows;
  const auto momentum = static_cast<float>(recipe_.momentum);
  const auto keep = static_cast<float>(1.0 - learning_rate * weight_decay);
  const double longer = static_cast<double>(std::max(part.rows, cols));
  const auto rate = static_cast<float>(learning_rate * 0.2 * std::sqrt(longer));
  float* const m = first_.data() + part.offset;
  std::vector<float> update(part.size);
  for (std::size_t i = 0; i < part.size; ++i) {
    const float g = part.factor * part.gradient[i];
    m[i] = momentum * m[i] + g;
    update[i] = g + momentum * m[i];  // Nesterov's
  }
  Orthogonalise(update, part.rows, cols);
  float* const p = parameters + part.offset;
  for (std::size_t i = 0; i < part.size; ++i) p[i] = keep * p[i] - rate * update[i];
}

void Optimizer::StepWith(double weight_decay, float* parameters, std::span<const Part> parts,
                         std::uint64_t step, double learning_rate) {
  std::vector<Part> vectors;
  if (recipe_.optimizer == "muon") {
    for (const Part& part : parts) {
      if (part.rows == 0 || part.size == 0) {
        vectors.push_back(part);
      } else {
        StepMatrix(weight_decay, parameters, part, learning_rate);
      }
    }
    parts = vectors;
  }
  const auto beta1 = static_cast<float>(recipe_.momentum);
  const auto decay = static_cast<float>(weight_decay);
  if (recipe_.optimizer == "sgd")
    return Apply(SgdRule{beta1, static_cast<float>(learning_rate), decay}, parameters, parts);
  const auto keep = static_cast<float>(1.0 - learning_rate * weight_decay);
  if (recipe_.optimizer == "sign")
    return Apply(SignRule{static_cast<float>(learning_rate), keep}, parameters, parts);
  const bool bert = recipe_.optimizer == "bert-adam";
  const bool l2 = recipe_.optimizer == "adam-l2";
  const auto updates = static_cast<double>(step + 1);
  const double correction1 = bert ? 1.0 : 1.0 - std::pow(recipe_.momentum, updates);
  const double correction2 = bert ? 1.0 : 1.0 - std::pow(recipe_.beta2, updates);
  AdamRule adam;
  adam.beta1 = beta1;
  adam.beta2 = static_cast<float>(recipe_.beta2);
  adam.rate = static_cast<float>(learning_rate / correction1);
  adam.keep = l2 ? 1.0f : keep;
  adam.root = static_cast<float>(1.0 / std::sqrt(correction2));
  adam.epsilon = static_cast<float>(bert ? kBertAdamEpsilon : kAdamEpsilon);
  if (l2) return Apply(AdamL2Rule{adam, decay}, parameters, parts);
  Apply(adam, parameters, parts);
}

std::vector<DeviceSpan<float>> Optimizer::DeviceState() {
  std::vector<DeviceSpan<float>> state;
  for (Buffer<float>* part : {&first_, &second_}) {
    if (part->size() > 0) state.push_back({part->data(), part->size(), stream_});
  }
  return state;
}

}  // namespace sparfuse::workloads

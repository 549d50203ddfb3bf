// Tests the recipes' schedules, clipping and optimizers against independent copies of their
// formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/errors.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::workloads {
namespace {

using sparfuse::testing::ErrorOf;

Recipe Convolutional() {
  Recipe recipe{.optimizer = "sgd",
                .learning_rate = 0.0125,
                .momentum = 0.9,
                .weight_decay = 5e-5,
                .schedule = "steps"};
  recipe.learning_rate_per_worker = true;
  recipe.warmup_from = "one-worker";
  recipe.warmup_epochs = 5;
  recipe.boundaries = "30 60";
  return recipe;
}

// The formula of the original program: fractional epochs during the warm-up, whole epochs after it.
double RateOfTheProgram(std::uint64_t step, double steps, double workers) {
  const double epoch = std::floor(static_cast<double>(step) / steps);
  const double batch = static_cast<double>(step) - epoch * steps;
  const double at = epoch + (batch + 1) / steps;
  double factor = 0;
  if (epoch < 5) {
    factor = (at * (workers - 1) / 5 + 1) / workers;
  } else {
    factor = epoch < 30 ? 1 : epoch < 60 ? 0.1 : 0.01;
  }
  return 0.0125 * workers * factor;
}

TEST(Schedule, StepsWarmUpFromOneWorkersRate) {
  for (const int workers : {1, 8, 64}) {
    const double steps = std::ceil(50000.0 / workers / 32);
    const Course course{.total_steps = static_cast<std::uint64_t>(80 * steps),
                        .steps_per_epoch = steps,
                        .workers = workers};
    for (int i = 0; i <= 20; ++i) {
      const auto step = static_cast<std::uint64_t>(i * 79.9 / 20 * steps);
      EXPECT_NEAR(LearningRate(Convolutional(), step, course),
                  RateOfTheProgram(step, steps, workers), 1e-12)
          << workers << " workers, step " << step;
    }
  }
}

TEST(Schedule, BertsRisesFromZeroAndMayBeSpannedAsShipped) {
  Recipe recipe{.optimizer = "bert-adam", .learning_rate = 3e-5, .schedule = "linear"};
  recipe.warmup_fraction = 0.1;
  recipe.warmup_from = "zero";
  const auto expected = [](double step, double total) {
    const double x = step / total;
    return 3e-5 * (x < 0.1 ? x / 0.1 : (x - 1) / (0.1 - 1));
  };
  for (const int workers : {1, 8, 64}) {
    for (const bool shipped : {false, true}) {
      recipe.schedule_span = shipped ? "shipped" : "trial";
      const Course course{.total_steps = 5540, .steps_per_epoch = 2770, .workers = workers};
      for (std::uint64_t step = 0; step < 5540; step += 277) {
        EXPECT_NEAR(LearningRate(recipe, step, course),
                    expected(static_cast<double>(step), 5540.0 * (shipped ? workers : 1)), 1e-15);
      }
    }
  }
}

TEST(Schedule, InverseSqrtIsTheTransformers) {
  Recipe recipe{.optimizer = "adam-l2",
                .learning_rate = 0.002,
                .warmup_steps = 100,
                .schedule = "inverse-sqrt"};
  recipe.learning_rate_per_worker = true;
  for (const std::uint64_t step : {0, 1, 50, 98, 99, 100, 1000, 4919}) {
    const double s = static_cast<double>(step) + 1;
    const double expected = 0.002 * 8 * 10 * std::min(std::pow(s, -0.5), s * std::pow(100.0, -1.5));
    EXPECT_NEAR(LearningRate(recipe, step, {.workers = 8}), expected, 1e-15) << step;
  }
}

TEST(Schedule, ExponentialFallsAtEachEpoch) {
  Recipe recipe{.optimizer = "sgd", .learning_rate = 2, .schedule = "exponential"};
  recipe.decay_factor = 0.98;
  const Course course{.total_steps = 1000, .steps_per_epoch = 10};
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 9, course), 2);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 10, course), 2 * 0.98);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 39, course), 2 * std::pow(0.98, 3));
}

TEST(Plateau, FallsBehindMoreThanPatienceEvaluations) {
  Recipe recipe;
  recipe.schedule = "plateau";
  recipe.decay_factor = 0.5;
  recipe.patience = 3;
  Plateau plateau(recipe);
  for (const double loss : {5.0, 4.0, 4.0, 4.5, 3.99999}) plateau.Observe(loss);
  EXPECT_EQ(plateau.factor(), 1) << "three in a row: the last is no lower by a ten-thousandth";
  plateau.Observe(4.1);
  EXPECT_EQ(plateau.factor(), 0.5);
  plateau.Observe(3.0);
  for (int i = 0; i < 4; ++i) plateau.Observe(3.0);
  EXPECT_EQ(plateau.factor(), 0.25);
}

TEST(Recipe, RefusesBoundariesThatDoNotRiseAndBadExpressions) {
  const Options defaults = ResolveOptions("recipe", RecipeOptions(Convolutional()), {});
  for (const char* text : {"60 30", "0 10", "ten", "30,,60"}) {
    Options options = defaults;
    options["boundaries"] = std::string(text);
    EXPECT_SAYS(ErrorOf([&] { RecipeFrom(options); }), "expected rising epochs");
  }
  Options options = defaults;
  options["no_decay"] = std::string("(bias");
  EXPECT_SAYS(ErrorOf([&] { RecipeFrom(options); }), "no_decay");
}

TEST(Clip, IsOfAllGradientsOrOfEach) {
  Recipe recipe;
  const std::vector<double> norms{3, 4, 0.5};
  EXPECT_EQ(ClipFactors(recipe, norms), (std::vector<float>{1, 1, 1}));
  recipe.clip_norm = 1;
  recipe.clip = "tensor";
  const std::vector<float> each = ClipFactors(recipe, norms);
  EXPECT_NEAR(each[0], 1.0 / 3, 1e-6);
  EXPECT_NEAR(each[1], 0.25, 1e-6);
  EXPECT_EQ(each[2], 1);
  recipe.clip = "global";
  for (const float factor : ClipFactors(recipe, norms))
    EXPECT_NEAR(factor, 1 / std::sqrt(9 + 16 + 0.25), 1e-6);
}

// Compares with the formulas in double over 50 steps; the second parameter has no decay.
TEST(Optimizer, AdamsAreTheirFormulas) {
  for (const std::string name : {"adam", "adam-l2", "bert-adam"}) {
    Recipe recipe{.optimizer = name,
                  .learning_rate = 0.01,
                  .momentum = 0.9,
                  .beta2 = 0.999,
                  .weight_decay = 0.01,
                  .schedule = {}};
    Optimizer optimizer(recipe, 2);
    std::vector<float> parameters{0.7f, -0.4f};
    double p[2] = {0.7f, -0.4f}, m[2] = {}, v[2] = {};
    for (int step = 0; step < 50; ++step) {
      float gradient[2];
      for (int i = 0; i < 2; ++i) gradient[i] = static_cast<float>(std::sin(step * 0.7 + i) + 0.2);
      const Optimizer::Part parts[] = {
          {.offset = 0, .size = 1, .gradient = gradient},
          {.offset = 1, .size = 1, .gradient = gradient + 1, .factor = 0.5f, .decays = false}};
      optimizer.Step(parameters.data(), parts, static_cast<std::uint64_t>(step), 0.01);
      for (int i = 0; i < 2; ++i) {
        const double decay = i == 0 ? 0.01 : 0;
        double g = gradient[i] * (i == 0 ? 1.0 : 0.5);
        if (name == "adam-l2") g += decay * p[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        const bool bert = name == "bert-adam";
        const double corrected_m = bert ? m[i] : m[i] / (1 - std::pow(0.9, step + 1));
        const double corrected_v = bert ? v[i] : v[i] / (1 - std::pow(0.999, step + 1));
        double update = corrected_m / (std::sqrt(corrected_v) + (bert ? 1e-6 : 1e-8));
        if (name != "adam-l2") update += decay * p[i];
        p[i] -= 0.01 * update;
        ASSERT_NEAR(parameters[static_cast<std::size_t>(i)], p[i], 1e-5) << name << ", " << step;
      }
    }
    EXPECT_EQ(optimizer.DeviceState().size(), 2u);
  }
}

}  // namespace
}  // namespace sparfuse::workloads

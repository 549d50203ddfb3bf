// Tests learning rates and optimizers by their definitions, on the host and on devices.
#include "workloads/optimizer/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace sparfuse::workloads {
namespace {

Recipe Sgd() {
  return {.optimizer = "sgd",
          .learning_rate = 0.5,
          .momentum = 0.5,
          .beta2 = 0.99,
          .weight_decay = 0.25,
          .warmup_steps = 4,
          .schedule = "cosine"};
}

// One step of the elements from `offset` on.
void Step(Optimizer& optimizer, std::vector<float>& parameters, std::size_t offset,
          std::span<const float> gradient, std::uint64_t step, double learning_rate) {
  const Optimizer::Part part{
      .offset = offset, .size = gradient.size(), .gradient = gradient.data()};
  optimizer.Step(parameters.data(), std::span(&part, 1), step, learning_rate);
}

TEST(LearningRate, RisesThenFallsToATwentieth) {
  const Recipe recipe = Sgd();
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 0, {104}), 0.125);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 3, {104}), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 4, {104}), 0.5);
  EXPECT_NEAR(LearningRate(recipe, 54, {104}), 0.5 * (0.05 + 0.95 / 2), 1e-12);
  EXPECT_NEAR(LearningRate(recipe, 104, {104}), 0.025, 1e-12);
  EXPECT_NEAR(LearningRate(recipe, 1000, {104}), 0.025, 1e-12);
  for (std::uint64_t step = 5; step < 104; ++step) {
    EXPECT_LT(LearningRate(recipe, step, {104}), LearningRate(recipe, step - 1, {104}));
  }
}

TEST(LearningRate, FallsToNothingOrByStepsAsAsked) {
  Recipe recipe = Sgd();
  recipe.schedule = "linear";
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 1, {104}), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 29, {104}), 0.375);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 104, {104}), 0.0);
  recipe.schedule = "staircase";
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 29, {80}), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 30, {80}), 0.05);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 59, {80}), 0.05);
  EXPECT_DOUBLE_EQ(LearningRate(recipe, 60, {80}), 0.005);
}

TEST(LearningRate, StaysWhereTheEndIsUnknown) {
  for (const char* schedule : {"cosine", "linear", "staircase"}) {
    Recipe recipe = Sgd();
    recipe.schedule = schedule;
    EXPECT_DOUBLE_EQ(LearningRate(recipe, 1000000, {0}), 0.5);
  }
}

// All numbers are exact in binary, and so are the results.
TEST(Optimizer, SgdFollowsItsRecurrence) {
  Optimizer optimizer(Sgd(), 3);
  std::vector<float> parameters{1.0f, 2.0f, 4.0f};
  const std::vector<float> gradient{0.5f, -1.0f};
  Step(optimizer, parameters, 1, gradient, 0, 0.5);
  // momentum = gradient + 0.25 * parameter; parameter -= 0.5 * momentum
  EXPECT_EQ(parameters, (std::vector<float>{1.0f, 1.5f, 4.0f}));
  Step(optimizer, parameters, 1, gradient, 1, 0.5);
  // momentum = 0.5 * {1, 0} + {0.5 + 0.375, -1 + 1}
  EXPECT_EQ(parameters, (std::vector<float>{1.0f, 0.8125f, 4.0f}));
  ASSERT_EQ(optimizer.DeviceState().size(), 1u);
  EXPECT_EQ(optimizer.DeviceState()[0].data[0], 0.0f);
  EXPECT_EQ(optimizer.DeviceState()[0].data[1], 1.375f);
}

// A part whose state was zeroed before update 3 takes the updates of an optimizer that begins
// there, and the others go on.
TEST(Optimizer, CorrectionsCountUpdatesSinceTheStateWasZero) {
  for (const char* name : {"adam", "adam-l2", "bert-adam", "sgd"}) {
    Recipe recipe = Sgd();
    recipe.optimizer = name;
    Optimizer optimizer(recipe, 4), whole(recipe, 4), anew(recipe, 4);
    std::vector<float> parameters{1, 2, 3, 4}, undisturbed = parameters, fresh = parameters;
    std::vector<float> gradient{.5f, -1, .25f, 2};  // a constant one needs no state
    std::vector<Optimizer::Part> parts{{.offset = 0, .size = 2, .gradient = gradient.data()},
                                       {.offset = 2, .size = 2, .gradient = gradient.data() + 2}};
    std::vector<Optimizer::Part> all = parts;
    for (std::uint64_t step = 0; step < 6; ++step) {
      if (step == 3) {
        for (const auto& state : optimizer.DeviceState()) state.data[2] = state.data[3] = 0;
        parts[1].since = 3;
        fresh = parameters;
      }
      optimizer.Step(parameters.data(), parts, step, .01);
      whole.Step(undisturbed.data(), all, step, .01);
      if (step >= 3) anew.Step(fresh.data(), all, step - 3, .01);
      for (float& each : gradient) each *= -1.5f;
    }
    for (const std::size_t i : {0, 1}) EXPECT_EQ(parameters[i], undisturbed[i]) << name;
    for (const std::size_t i : {2, 3}) {
      EXPECT_EQ(parameters[i], fresh[i]) << name;
      EXPECT_NE(parameters[i], undisturbed[i]) << name;
    }
  }
}

TEST(Optimizer, SaysHowMuchItKeepsAndUses) {
  EXPECT_EQ(MomentsUsed("sgd", 0.9), 1u);
  EXPECT_EQ(MomentsUsed("sgd", 0), 0u);
  EXPECT_EQ(MomentsUsed("sign", 0.9), 0u);
  for (const char* name : {"adam", "adam-l2", "bert-adam", "muon"})
    EXPECT_EQ(MomentsUsed(name, 0), 2u);
}

// All numbers are exact in binary.
TEST(Optimizer, SignTakesAStepOfTheRateWhateverTheGradient) {
  Recipe recipe = Sgd();
  recipe.optimizer = "sign";
  Optimizer optimizer(recipe, 4);
  std::vector<float> parameters{1.0f, 2.0f, -4.0f, 8.0f};
  const std::vector<float> gradient{0.5f, -1e-30f, 0.0f, -0.0f};
  // parameter = (1 - 0.5 * 0.25) parameter - 0.5 * sign
  for (const std::uint64_t step : {0, 1}) {
    for (std::size_t i = 0; i < 4; ++i) {
      Step(optimizer, parameters, i, std::span(gradient).subspan(i, 1), step, 0.5);
    }
  }
  EXPECT_EQ(parameters, (std::vector<float>{-0.171875f, 2.46875f, -3.0625f, 6.125f}));
  EXPECT_TRUE(optimizer.DeviceState().empty());
}

// The step of the iteration on one singular value.
double AfterFiveSteps(double s) {
  const double steps[][3] = {{4.0848, -6.8946, 2.9270},
                             {3.9505, -6.3029, 2.6377},
                             {3.7418, -5.5913, 2.3037},
                             {2.8769, -3.1427, 1.2046},
                             {2.8366, -3.0525, 1.2012}};
  for (const auto& [a, b, c] : steps) s = s * (a + b * s * s + c * s * s * s * s);
  return s;
}

// A matrix of singular values 3 and 4 is turned alike in all its sizes; by hand on the values over
// their norm 5.
TEST(Optimizer, OrthogonaliseMapsSingularValuesAndKeepsDirections) {
  const double small = AfterFiveSteps(0.6), large = AfterFiveSteps(0.8);
  EXPECT_NEAR(small, 1, 0.1);
  EXPECT_NEAR(large, 1, 0.1);
  for (const auto& [rows, cols] :
       {std::pair<std::size_t, std::size_t>{2, 2}, {2, 7}, {9, 2}, {6, 6}}) {
    // 3 u v' + 4 w z', u = e1, w = e2 both turned by half a radian among the columns.
    const double c = std::cos(0.5), s = std::sin(0.5);
    std::vector<float> x(rows * cols);
    const auto at = [&](std::size_t i, std::size_t j) -> float& { return x[i * cols + j]; };
    at(0, 0) = float(3 * c), at(0, 1) = float(3 * s);
    at(1, 0) = float(-4 * s), at(1, 1) = float(4 * c);
    Orthogonalise(x, rows, cols);
    EXPECT_NEAR(at(0, 0), small * c, 1e-5);
    EXPECT_NEAR(at(0, 1), small * s, 1e-5);
    EXPECT_NEAR(at(1, 0), -large * s, 1e-5);
    EXPECT_NEAR(at(1, 1), large * c, 1e-5);
  }
  std::vector<float> zero(12);
  Orthogonalise(zero, 3, 4);
  EXPECT_EQ(zero, std::vector<float>(12));
  std::vector<float> one{-2};
  Orthogonalise(one, 1, 1);
  EXPECT_NEAR(one[0], -AfterFiveSteps(1), 1e-5);
}

// A matrix goes by Nesterov's momentum, made orthogonal; a vector as adam's.
TEST(Optimizer, MuonTurnsMatricesAndLeavesTheRestToAdam) {
  Recipe recipe = Sgd();
  recipe.optimizer = "muon";
  Optimizer muon(recipe, 8);
  recipe.optimizer = "adam";
  Optimizer adam(recipe, 8);
  std::vector<float> parameters{1, 2, 3, 4, 5, 6, 7, 8}, others = parameters;
  std::vector<float> gradient{.5f, -1, .25f, 2, -1, 1, 0.5f, 3}, momentum(6);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Optimizer::Part parts[] = {
        {.offset = 0, .size = 6, .gradient = gradient.data(), .factor = 0.5f, .rows = 2},
        {.offset = 6, .size = 2, .gradient = gradient.data() + 6}};
    std::vector<float> expected(parameters.begin(), parameters.begin() + 6), update(6);
    for (std::size_t i = 0; i < 6; ++i) {
      momentum[i] = .5f * momentum[i] + .5f * gradient[i];
      update[i] = .5f * gradient[i] + .5f * momentum[i];
    }
    Orthogonalise(update, 2, 3);
    for (std::size_t i = 0; i < 6; ++i)
      expected[i] = (1 - .01f * .25f) * expected[i] - .01f * .2f * std::sqrt(3.0f) * update[i];
    muon.Step(parameters.data(), parts, step, .01);
    adam.Step(others.data(), std::span(parts + 1, 1), step, .01);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(parameters[i], expected[i], 1e-6) << step;
    for (std::size_t i = 6; i < 8; ++i) EXPECT_EQ(parameters[i], others[i]) << step;
    for (float& each : gradient) each *= -1.5f;
  }
  recipe.optimizer = "muon";
  EXPECT_THROW(Optimizer(recipe, 4, {{DeviceKind::kEmulated, 0}, nullptr}), Error);
}

// More parameters than one launch takes, some larger than a block, some without a gradient.
TEST(Optimizer, ADeviceComputesTheBitsOfTheHost) {
  const Device device{DeviceKind::kEmulated, 0};
  std::vector<Optimizer::Part> parts;
  std::size_t numel = 0;
  for (std::size_t i = 0; i < 120; ++i) {
    const std::size_t size = i % 40 == 0 ? 5000 : i % 7;
    if (i % 11 != 3) parts.push_back({.offset = numel, .size = size});
    numel += size + i % 3;
  }
  Buffer<float> gradients(numel, device);
  for (std::size_t i = 0; i < numel; ++i) gradients.data()[i] = std::sin(0.7f * float(i));
  for (Optimizer::Part& part : parts) part.gradient = gradients.data() + part.offset;

  for (const char* name : {"sgd", "adam", "sign"}) {
    Recipe recipe = Sgd();
    recipe.optimizer = name;
    Optimizer on_host(recipe, numel);
    Optimizer on_device(recipe, numel, {device, nullptr});
    std::vector<float> expected(numel, 0.3f);
    Buffer<float> parameters(numel, device);
    std::copy(expected.begin(), expected.end(), parameters.data());
    for (std::uint64_t step = 0; step < 3; ++step) {
      on_host.Step(expected.data(), parts, step, 0.01);
      on_device.Step(parameters.data(), parts, step, 0.01);
    }
    EXPECT_EQ(std::memcmp(expected.data(), parameters.data(), 4 * numel), 0) << name;
    const auto state = on_host.DeviceState();
    const auto device_state = on_device.DeviceState();
    ASSERT_EQ(state.size(), device_state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(std::memcmp(state[i].data, device_state[i].data, 4 * numel), 0) << name;
    }
    EXPECT_EQ(expected[parts[1].offset + parts[1].size], 0.3f) << "between parts";
  }
}

}  // namespace
}  // namespace sparfuse::workloads

// Checks an engine's requirements for every workload: the times and arguments of hooks, equal bits
// from equal inputs, and the inputs of Update. Results must not depend on the cut into micro-steps
// and ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "tests/support/model_step.hpp"
#include "tests/support/workload_state.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/models/layers.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {
namespace {

using testing::SmallConfig;
using Gradients = std::vector<std::vector<float>>;  // by parameter; empty if there is none

// Gradients as given to the hooks, and the order of their arrival.
struct Observed {
  Gradients gradients;
  std::vector<std::size_t> order;
  float loss = 0;  // mean over micro-steps
};

Observed RunStep(TrainingWorkload& workload, std::uint64_t step, int accumulation) {
  Observed observed;
  observed.gradients.resize(workload.Parameters().size());
  workload.SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t numel) {
    observed.gradients[parameter].assign(gradient, gradient + numel);
    observed.order.push_back(parameter);
  });
  workload.ClearGradients();
  for (int micro = 0; micro < accumulation; ++micro) {
    observed.loss += workload.Forward(step, micro) / static_cast<float>(accumulation);
    workload.Backward(micro + 1 == accumulation);
  }
  return observed;
}

void TrainAlone(TrainingWorkload& workload, std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps; ++step) testing::TrainOnce(workload, step, step);
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

double Norm(const Gradients& gradients) {
  double sum = 0;
  for (const auto& gradient : gradients) {
    for (const float value : gradient) sum += static_cast<double>(value) * value;
  }
  return std::sqrt(sum);
}

double Distance(const Gradients& a, const Gradients& b) {
  Gradients difference = a;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].size(), b[i].size());
    for (std::size_t j = 0; j < a[i].size(); ++j) difference[i][j] -= b[i][j];
  }
  return Norm(difference);
}

class TrainingStep : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<TrainingWorkload> Make(const WorkloadConfig& config = SmallConfig()) {
    return MakeWorkload(GetParam(), config);
  }
};

TEST_P(TrainingStep, EachGradientIsReadyOnceAsTheLayerTableSays) {
  testing::ExpectAStepAsTheTableSays(GetParam(), SmallConfig().batch_per_worker, 1);
}

TEST_P(TrainingStep, AGradientIsFinalWhenItsHookRuns) {
  auto workload = Make();
  const std::vector<ParameterInfo>& infos = workload->Parameters();
  std::vector<const float*> where(infos.size(), nullptr);
  Gradients then(infos.size());
  workload->SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t numel) {
    ASSERT_EQ(numel, infos[parameter].numel);
    where[parameter] = gradient;
    then[parameter].assign(gradient, gradient + numel);
  });
  workload->ClearGradients();
  workload->Forward(0, 0);
  workload->Backward(true);
  const std::vector<std::string>& without = LayersOf(GetParam()).without_gradient;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (std::find(without.begin(), without.end(), infos[i].name) != without.end()) continue;
    ASSERT_NE(where[i], nullptr) << infos[i].name;
    EXPECT_TRUE(SameBits(then[i], {where[i], infos[i].numel})) << infos[i].name;
  }
}

// The slope along the gradient is its length. A missed use of a weight (a tied one) or a misplaced
// gradient would show.
TEST_P(TrainingStep, GradientIsTheSlopeOfTheLoss) {
  auto workload = Make();
  const Observed at_start = RunStep(*workload, 0, 1);
  const std::span<float> parameters = workload->State()[0];
  const std::vector<float> start(parameters.begin(), parameters.end());
  const auto& infos = workload->Parameters();
  std::size_t checked = 0;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const double length = Norm({at_start.gradients[i]});
    if (length < 0.02) continue;  // lost in the rounding of a float32 loss
    const auto loss_at = [&](double distance) {
      std::copy(start.begin(), start.end(), parameters.begin());
      for (std::size_t j = 0; j < infos[i].numel; ++j) {
        parameters[infos[i].offset + j] +=
            static_cast<float>(distance * at_start.gradients[i][j] / length);
      }
      return static_cast<double>(RunStep(*workload, 0, 1).loss);
    };
    const double h = std::min(0.003, 0.003 / length);
    const double slope = (loss_at(h) - loss_at(-h)) / (2 * h);
    EXPECT_NEAR(slope / length, 1.0, 0.05) << infos[i].name << ", length " << length;
    ++checked;
  }
  EXPECT_GE(2 * checked, infos.size());
}

TEST_P(TrainingStep, EqualRunsGiveEqualBits) {
  auto a = Make(), b = Make();
  TrainAlone(*a, 3);
  TrainAlone(*b, 3);
  const auto state_a = a->State(), state_b = b->State();
  ASSERT_EQ(state_a.size(), state_b.size());
  ASSERT_GE(state_a.size(), 2u);
  for (std::size_t i = 0; i < state_a.size(); ++i) EXPECT_TRUE(SameBits(state_a[i], state_b[i]));
  const Evaluation evaluation = a->Evaluate(64);
  EXPECT_EQ(evaluation.samples, 64u);
  EXPECT_EQ(evaluation.metric, b->Evaluate(64).metric);
  EXPECT_EQ(evaluation.loss, a->Evaluate(64).loss) << "evaluation changed the model";
}

TEST_P(TrainingStep, RanksStartEqualAndSeedsDiffer) {
  WorkloadConfig config = SmallConfig();
  config.world = 2;
  auto rank0 = Make(config);
  config.rank = 1;
  auto rank1 = Make(config);
  config.seed = 4;
  auto other = Make(config);
  EXPECT_TRUE(SameBits(rank0->State()[0], rank1->State()[0]));
  EXPECT_FALSE(SameBits(rank0->State()[0], other->State()[0]));
  for (const std::span<float> state : rank0->State()) {
    EXPECT_EQ(state.size(), rank0->State()[0].size());
  }
  EXPECT_NE(rank0->Forward(0, 0), rank1->Forward(0, 0)) << "both ranks got the same batch";
}

TEST_P(TrainingStep, AccumulationAndRanksEqualABiggerBatch) {
  if (GetParam() == "resnet-small" || GetParam() == "vgg-small") {
    GTEST_SKIP() << "normalises over the batch, whose samples then are no sum of parts";
  }
  WorkloadConfig config = SmallConfig();
  config.batch_per_worker = 8;
  auto whole = Make(config);
  config.batch_per_worker = 4;
  config.accumulation = 2;
  auto accumulated = Make(config);
  config.accumulation = 1;
  config.world = 2;
  auto rank0 = Make(config);
  config.rank = 1;
  auto rank1 = Make(config);
  for (const std::uint64_t step : {0, 5}) {
    const Observed expected = RunStep(*whole, step, 1);
    const Observed in_micro_steps = RunStep(*accumulated, step, 2);
    EXPECT_NEAR(in_micro_steps.loss, expected.loss, 1e-5 * expected.loss);
    EXPECT_EQ(in_micro_steps.order.size(), expected.order.size()) << "hooks ran more than once";
    EXPECT_LT(Distance(in_micro_steps.gradients, expected.gradients),
              1e-4 * Norm(expected.gradients));
    Gradients mean = RunStep(*rank0, step, 1).gradients;
    const Gradients second = RunStep(*rank1, step, 1).gradients;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (std::size_t j = 0; j < mean[i].size(); ++j) mean[i][j] = (mean[i][j] + second[i][j]) / 2;
    }
    EXPECT_LT(Distance(mean, expected.gradients), 1e-4 * Norm(expected.gradients));
  }
}

TEST_P(TrainingStep, UpdateUsesTheGradientThatWasSetAndNoOther) {
  WorkloadConfig config = SmallConfig();
  config.options = {{"optimizer", std::string("sgd")},
                    {"learning_rate", 0.25},
                    {"weight_decay", 0.0},
                    {"warmup_steps", std::int64_t{0}}};
  auto workload = Make(config);
  RunStep(*workload, 0, 1);
  const std::size_t chosen = 1;
  const ParameterInfo& info = workload->Parameters()[chosen];
  std::vector<float> gradient(info.numel);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 7) - 3.0f;
  std::vector<float> expected(workload->State()[0].begin(), workload->State()[0].end());
  workload->SetGradient(chosen, gradient.data());
  workload->Update(0);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    expected[info.offset + i] -= 0.25f * gradient[i];
  }
  EXPECT_TRUE(SameBits(workload->State()[0], expected));
  // A set gradient is forgotten after the step, and the engine's memory is never accumulated onto.
  const std::vector<float> before = gradient;
  RunStep(*workload, 1, 1);
  workload->Update(1);
  EXPECT_TRUE(SameBits(workload->State()[0], expected));
  EXPECT_EQ(gradient, before);
}

TEST_P(TrainingStep, StatesCanBeBroadcastInto) {
  WorkloadConfig config = SmallConfig();
  auto source = Make(config);
  TrainAlone(*source, 2);
  config.seed = 99;
  auto target = Make(config);
  const auto from = source->State(), to = target->State();
  for (std::size_t i = 0; i < from.size(); ++i)
    std::copy(from[i].begin(), from[i].end(), to[i].begin());
  target->SetStatistics(source->Statistics());
  EXPECT_EQ(source->Evaluate(64).loss, target->Evaluate(64).loss);
}

TEST_P(TrainingStep, AnUnusedParameterIsNeverReadyAndNeverChanges) {
  WorkloadConfig config = SmallConfig();
  config.options["unused_parameter"] = true;
  auto workload = Make(config);
  const std::size_t unused = workload->Parameters().size() - 1;
  EXPECT_EQ(workload->Parameters()[unused].name, "unused");
  const Observed observed = RunStep(*workload, 0, 1);
  EXPECT_EQ(observed.order.size(), LayersOf(GetParam()).tensors.size());
  EXPECT_TRUE(observed.gradients[unused].empty());
  TrainAlone(*workload, 2);
  const ParameterInfo& info = workload->Parameters()[unused];
  for (const float value : workload->State()[0].subspan(info.offset, info.numel)) {
    EXPECT_EQ(value, 1.0f);
  }
}

TEST_P(TrainingStep, NanComesAtItsStepOnRankZeroAlone) {
  WorkloadConfig config = SmallConfig();
  config.world = 2;
  config.options["nan_step"] = std::int64_t{1};
  for (const int rank : {0, 1}) {
    config.rank = rank;
    auto workload = Make(config);
    for (const std::uint64_t step : {0, 1, 2}) {
      EXPECT_EQ(std::isnan(Norm(RunStep(*workload, step, 1).gradients)), rank == 0 && step == 1);
    }
  }
}

TEST_P(TrainingStep, AnErrorInAHookLeavesBackward) {
  testing::ExpectAnErrorInAHookLeavesBackward(*Make());
}

TEST_P(TrainingStep, RefusesUnknownOptions) {
  WorkloadConfig config = SmallConfig();
  config.options["learning_rat"] = 0.1;
  EXPECT_THROW(Make(config), Error);
}

INSTANTIATE_TEST_SUITE_P(Workloads, TrainingStep, ::testing::ValuesIn(testing::WorkloadNames()),
                         testing::TestName);

TEST(TextGpt, ATiedWeightCountsOnceAtItsLastUse) {
  auto workload = MakeWorkload("text-gpt", SmallConfig());
  const Observed observed = RunStep(*workload, 0, 1);
  EXPECT_EQ(workload->Parameters()[0].name, "wte.weight");
  EXPECT_EQ(std::count(observed.order.begin(), observed.order.end(), std::size_t{0}), 1);
  // The tied weight is used first by the logits, but its gradient is final only after the embedding
  // at the model's start.
  const auto ready = std::find(observed.order.begin(), observed.order.end(), std::size_t{0});
  EXPECT_GE(ready - observed.order.begin(), static_cast<std::ptrdiff_t>(observed.order.size()) - 2);
}

TEST(Baseline, OnlyTextHasOne) {
  EXPECT_FALSE(MakeWorkload("digits-resnet", SmallConfig())->UnigramBaseline().has_value());
  const double gpt = MakeWorkload("text-gpt", SmallConfig())->UnigramBaseline().value();
  EXPECT_EQ(gpt, MakeWorkload("text-lstm", SmallConfig())->UnigramBaseline().value());
  EXPECT_GT(gpt, 15.0);  // English letters with spaces and case: some 4.3 bits
  EXPECT_LT(gpt, 25.0);
}

}  // namespace
}  // namespace sparfuse::workloads

// Tests the running statistics of batch normalisation: their inputs and their users. Also tests
// other changes that a recipe makes to a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/workload_state.hpp"

namespace sparfuse::workloads {
namespace {

using testing::SmallConfig;
using testing::TrainOnce;

TEST(Statistics, BeginAtZeroAndOneAndFollowTheBatch) {
  const auto workload = MakeWorkload("resnet-small", SmallConfig());
  const std::vector<float> start = workload->Statistics();
  ASSERT_FALSE(start.empty());
  EXPECT_EQ(std::ranges::count(start, 0.0f), std::ranges::count(start, 1.0f));
  TrainOnce(*workload, 0, 0);
  EXPECT_NE(workload->Statistics(), start);
  EXPECT_TRUE(MakeWorkload("digits-resnet", SmallConfig())->Statistics().empty());
}

// An update takes nine tenths of the old statistics and a tenth of the batch's. So after an equal
// batch, two statistics differ by nine tenths of their difference: means over ranks may be taken at
// any time.
TEST(Statistics, AreLinearInWhatTheyWere) {
  const auto a = MakeWorkload("resnet-small", SmallConfig());
  const auto b = MakeWorkload("resnet-small", SmallConfig());
  std::vector<float> other = b->Statistics();
  for (float& value : other) value += 0.5f;
  b->SetStatistics(other);
  EXPECT_EQ(b->Statistics(), other);
  a->Forward(0, 0);
  b->Forward(0, 0);
  const std::vector<float> one = a->Statistics(), two = b->Statistics();
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(two[i] - one[i], 0.45, 1e-5) << i;
}

TEST(Statistics, AreOfEvaluationsAndChangedByNone) {
  const auto workload = MakeWorkload("vgg-small", SmallConfig());
  for (std::uint64_t step = 0; step < 3; ++step) TrainOnce(*workload, step, step);
  const std::vector<float> kept = workload->Statistics();
  const double loss = workload->Evaluate(64).loss;
  EXPECT_EQ(workload->Statistics(), kept);
  std::vector<float> others = kept;
  for (float& value : others) value *= 2;
  workload->SetStatistics(others);
  EXPECT_NE(workload->Evaluate(64).loss, loss);
  workload->SetStatistics(kept);
  EXPECT_EQ(workload->Evaluate(64).loss, loss);
}

TEST(Recipes, ClippingBoundsTheStep) {
  WorkloadConfig config = SmallConfig();
  config.options = {{"optimizer", std::string("sgd")},
                    {"momentum", 0.0},
                    {"weight_decay", 0.0},
                    {"learning_rate", 1.0},
                    {"warmup_steps", std::int64_t{0}},
                    {"clip_norm", 0.01},
                    {"schedule", std::string("constant")}};
  const auto workload = MakeWorkload("lstm-small", config);
  const auto parameters = [&] {
    return std::vector<float>(workload->State()[0].begin(), workload->State()[0].end());
  };
  const std::vector<float> before = parameters();
  TrainOnce(*workload, 0, 0);
  const std::vector<float> after = parameters();
  double squares = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double moved = static_cast<double>(after[i]) - before[i];
    squares += moved * moved;
  }
  EXPECT_NEAR(std::sqrt(squares), 0.01, 1e-5);
}

TEST(Recipes, PublishedInitialValuesAreOthers) {
  WorkloadConfig config = SmallConfig();
  config.options = {{"initial_values", std::string("published")}};
  const auto published = MakeWorkload("lstm-small", config);
  const double bound = 1 / std::sqrt(128.0);
  for (const ParameterInfo& info : published->Parameters()) {
    const auto values = published->State()[0].subspan(info.offset, info.numel);
    const double largest =
        std::abs(*std::ranges::max_element(values, {}, [](float v) { return std::abs(v); }));
    const bool recurrent = info.name.starts_with("rnn.");
    const double within = info.name == "decoder.bias" ? 0 : recurrent ? bound : 0.1;
    EXPECT_LE(largest, within + 1e-7) << info.name;
    EXPECT_GE(largest, 0.9 * within) << info.name;
  }
}

// Without dropout in attention, both run the same computation with different kernels.
TEST(Recipes, AttentionDropoutChangesTrainingAlone) {
  WorkloadConfig config = SmallConfig();
  const auto without = MakeWorkload("gpt-small", config);
  config.options = {{"attention_dropout", 0.5}};
  const auto with = MakeWorkload("gpt-small", config), again = MakeWorkload("gpt-small", config);
  EXPECT_EQ(without->Evaluate(32).loss, with->Evaluate(32).loss);
  const float loss = with->Forward(0, 0);
  EXPECT_NE(loss, without->Forward(0, 0));
  EXPECT_EQ(loss, again->Forward(0, 0));
}

}  // namespace
}  // namespace sparfuse::workloads

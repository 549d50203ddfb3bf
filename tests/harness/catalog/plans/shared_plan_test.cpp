// Tests that ranks use rank 0's plan instead of their own, and that they report on which ranks it
// does not fit.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/engine/strategies.hpp"
#include "harness/catalog/fusion_plan.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kRanks = 4;

GradientLayout Layout(bool turned = false) {
  GradientLayout layout;
  for (const std::size_t n : testing::kTensorSizes) {
    layout.Add("tensor " + std::to_string(n), {static_cast<std::int64_t>(n)}, n);
  }
  if (!turned) return layout;
  GradientLayout other;
  for (std::size_t t : {1u, 0u}) {
    const TensorEntry& tensor = layout.tensor(t);
    other.Add(tensor.name, tensor.shape, tensor.numel);
  }
  for (std::size_t t = 2; t < layout.tensors(); ++t) {
    const TensorEntry& tensor = layout.tensor(t);
    other.Add(tensor.name, tensor.shape, tensor.numel);
  }
  return other;
}

// A planner's plan from times that differ by rank.
Plan PlannedBy(int rank) {
  const std::size_t tensors = testing::kTensorSizes.size();
  const auto first = static_cast<std::size_t>(rank + 1);
  Plan plan;
  plan.units = {{0, first, Sparsified::kBehind, 0.05}, {first, tensors, Sparsified::kBehind, 0.05}};
  return plan;
}

TEST(SharedPlan, IsRankZerosAndTheStepEnds) {
  std::vector<std::vector<float>> averaged(kRanks);
  std::vector<Plan> plans(kRanks);
  testing::RunRanks(kRanks, 2, testing::kLiveDeadline, [&](ProgressLoop& loop) {
    const auto rank = static_cast<std::size_t>(loop.rank());
    plans[rank] = SharePlan(loop, PlannedBy(loop.rank()), Layout());
    LiveConfig config;
    config.layout = Layout();
    config.plan = plans[rank];
    config.topology = {kRanks, 2};
    config.strategy = std::make_unique<NodeShards>();
    config.sparsifier = testing::SparsifierOf("topk");
    config.feedback.kind = FeedbackKind::kResidual;
    config.dense_collective = CoreCollective("ring-allreduce");
    config.sparse_collective = CoreCollective("sparse-allgather");
    config.deadline = testing::kLiveDeadline;
    ThreadPool pool(1);
    LiveEngine engine(std::move(config), loop, pool);
    std::vector<std::vector<float>> gradients;
    for (std::size_t t = 0; t < testing::kTensorSizes.size(); ++t) {
      gradients.push_back(testing::IntegerGradient(loop.rank(), 0, t));
    }
    engine.BeginStep(0, false);
    for (std::size_t t = 0; t < gradients.size(); ++t) engine.AnnounceGradient(t, gradients[t]);
    engine.EndBackward();
    engine.FinishStep();
    averaged[rank] = testing::AveragedOf(engine);
    engine.EndStep();
  });
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(plans[rank], PlannedBy(0)) << rank;
    EXPECT_EQ(averaged[rank], averaged[0]) << rank;
  }
}

// Two tensors of equal size are swapped: the units have the same bytes, but would be summed with
// other tensors.
TEST(SharedPlan, OfOtherTensorsIsRefusedOnEveryRank) {
  std::vector<std::string> said(kRanks);
  testing::RunRanks(kRanks, 1, testing::kLiveDeadline, [&](ProgressLoop& loop) {
    const bool turned = loop.rank() == 1 || loop.rank() == 3;
    try {
      SharePlan(loop, PlannedBy(0), Layout(turned));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), FailureKind::kInternal);
      said[static_cast<std::size_t>(loop.rank())] = error.what();
    }
  });
  for (const std::string& error : said) {
    EXPECT_SAYS(error, "plan 1,7 of rank 0");
    EXPECT_SAYS(error, "tensors differ on ranks 1 3;");
  }
}

}  // namespace
}  // namespace sparfuse::harness

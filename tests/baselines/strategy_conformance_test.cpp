// Tests every strategy with every planner, live over ranks that are threads, on the host and on the
// emulated device. This is the part of the method conformance that needs only core and baselines,
// so that sanitizers see the engine's threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "baselines/registry.hpp"
#include "core/fusion/plan.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/named_part.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

LiveConfig Configure(const StrategyDescriptor& strategy, const PlannerDescriptor& planner,
                     int workers, Device device) {
  LiveConfig config = DenseLive({}, {workers, 1}, device);
  Options planner_options;
  if (planner.name == "by-bytes") planner_options["threshold_bytes"] = 3000.0;
  if (planner.name == "ddp-buckets") {
    planner_options["first_bucket_bytes"] = 1000.0;
    planner_options["bucket_bytes"] = 3000.0;
  }
  if (planner.name == "by-count") planner_options["units"] = std::int64_t{3};
  if (planner.ahead_only) planner_options["tensors_per_unit"] = std::int64_t{4};
  if (planner.name == "ssfusion") {
    planner_options["offload"] = true;
    planner_options["interleave"] = true;
    planner_options["partition"] = std::string("all");
  }
  Options strategy_options;
  if (strategy.name == "safusion-naive") strategy_options["buffer_bytes"] = 400.0;
  config.sparse_collective = CoreCollective("sparse-allgather");
  const BackwardProfile backward = EvenBackward(kTensorSizes.size());
  const CostModel cost = EvenCost();
  config.plan = PlanOf(
      planner.name,
      InputOf(config.layout, config.topology, 0.05, strategy.sparsified, backward, cost, "dgc"),
      planner_options);
  config.strategy =
      strategy.make(ResolveOptions(strategy.name, strategy.options, strategy_options));
  if (strategy.sparsified != Sparsified::kNever) {
    config.sparsifier = SparsifierOf("dgc");
    config.feedback.kind = FeedbackKind::kResidual;
  }
  return config;
}

using Pair = std::pair<std::string, std::string>;  // strategy, planner

class EveryStrategy : public ::testing::TestWithParam<std::tuple<Pair, int>> {
 protected:
  static std::vector<RankResult> Run(Device device) {
    const auto& [names, workers] = GetParam();
    const auto& [strategy, planner] = names;
    return RunLive(
        [&] { return Configure(FindStrategy(strategy), FindPlanner(planner), workers, device); },
        workers, IntegerGradient);
  }
  static void LosesNothingAndLeavesReplicasEqual(Device device) {
    const auto results = Run(device);
    EXPECT_EQ(LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
    for (const auto& rank : results) {
      EXPECT_EQ(rank.averaged, results.front().averaged);
      EXPECT_EQ(rank.mass_violations, 0u);
    }
  }
};

TEST_P(EveryStrategy, LosesNothingAndLeavesReplicasEqual) {
  LosesNothingAndLeavesReplicasEqual({});
}

class EveryStrategyOnADevice : public EveryStrategy {};

TEST_P(EveryStrategyOnADevice, LosesNothingAndLeavesReplicasEqual) {
  LosesNothingAndLeavesReplicasEqual(kEmulated);
}

std::vector<Pair> PairsThatFit() {
  std::vector<Pair> pairs;
  if (!ThePart().name.empty() && !IsNamed("strategy")) return pairs;
  std::vector<std::string> names;
  for (const StrategyDescriptor& each : Strategies()) names.emplace_back(each.name);
  if (IsNamed("strategy")) names = {ThePart().name};
  for (const std::string& name : names) {
    const StrategyDescriptor& strategy = FindStrategy(name);
    // The laws of strategies that exchange parameters are in tests/core/localsteps.
    if (strategy.local_steps != nullptr || strategy.delays) continue;
    for (const PlannerDescriptor& planner : Planners()) {
      if (planner.name == kGivenPlanner && !strategy.dense_units) continue;
      if (planner.ahead_only && strategy.sparsified != Sparsified::kAhead) continue;
      pairs.emplace_back(strategy.name, planner.name);
    }
  }
  return pairs;
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Pair, int>>& info) {
  const auto& [strategy, planner] = std::get<0>(info.param);
  return InTestName(strategy + "_" + planner + "_" + std::to_string(std::get<1>(info.param)));
}

const std::vector<int> kWorkers = kSanitized ? std::vector{3} : std::vector{1, 2, 3};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryStrategy);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryStrategyOnADevice);
INSTANTIATE_TEST_SUITE_P(Registered, EveryStrategy,
                         ::testing::Combine(::testing::ValuesIn(PairsThatFit()),
                                            ::testing::ValuesIn(kWorkers)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Registered, EveryStrategyOnADevice,
                         ::testing::Combine(::testing::ValuesIn(PairsThatFit()),
                                            ::testing::Values(2)),
                         NameOf);

// A step of one tensor, by a strategy that applies nothing.
void ExpectNoEnd(std::unique_ptr<Strategy> strategy, FailureKind kind, const std::string& text) {
  RunRanks(1, 1, kLiveDeadline, [&](ProgressLoop& loop) {
    LiveConfig config;
    config.layout.Add("weight", {4}, 4);
    config.plan = {{Unit{0, 1, Sparsified::kNever, 1.0}}};
    config.strategy = std::move(strategy);
    config.deadline = std::chrono::milliseconds(50);
    ThreadPool pool(1);
    LiveEngine engine(std::move(config), loop, pool);
    const std::vector<float> gradient(4, 1.0f);
    ExpectError(kind, {text}, [&] {
      engine.BeginStep(0, false);
      engine.AnnounceGradient(0, gradient);
      engine.EndBackward();
      engine.FinishStep();
    });
  });
}

TEST(LiveEngine, NamesAStepThatDoesNotEnd) {
  class Late final : public Strategy {
    void GradientReady(Engine& engine, std::size_t) override { engine.StartTimer(1000, {}); }
  };
  ExpectNoEnd(std::make_unique<Late>(), FailureKind::kTimeout, "0 of 4 elements applied");
}

TEST(LiveEngine, NamesATensorThatIsLeftOut) {
  class Forgetful final : public Strategy {
    void GradientReady(Engine& engine, std::size_t tensor) override {
      engine.Pack({.tensor = tensor});
    }
  };
  ExpectNoEnd(std::make_unique<Forgetful>(), FailureKind::kConfig,
              "0 of 4 elements are applied, \"weight\" is not");
}

}  // namespace
}  // namespace sparfuse::testing

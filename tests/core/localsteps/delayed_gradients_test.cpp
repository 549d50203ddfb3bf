// Tests updates with the gradients of the step before, live and modelled, over ranks that are
// threads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "baselines/composition.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/counted_steps.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

// One unit, and several units, the last of which may continue into the next step.
const std::vector<std::string> kPlanners = {"whole-model", "layer-wise"};

GradientLayout Layout() {
  std::vector<TensorShape> tensors;
  for (const std::size_t n : kTensorSizes) {
    tensors.push_back({"t" + std::to_string(n), {static_cast<std::int64_t>(n)}, n});
  }
  return MakeLayout(tensors, {}, "the test");
}

MethodParts Parts(const std::string& strategy, const std::string& planner) {
  MethodParts parts;
  parts.strategy = strategy;
  parts.planner = planner;
  parts.collective = "ring-allreduce";
  return parts;
}

std::vector<RankResult> StepsOf(const std::string& strategy, const std::string& planner,
                                const Topology& where, Device device = {}) {
  const Composition made = Compose(Parts(strategy, planner));
  const auto configure = [&] {
    GradientLayout layout = Layout();
    Plan plan = MakePlan(made, layout, where, nullptr, nullptr);
    LiveConfig config = MakeLiveConfig(made, std::move(layout), std::move(plan), where, 7);
    config.deadline = kLiveDeadline;
    config.device = device;
    return config;
  };
  return RunLive(configure, where.ranks, IntegerGradient, 4);  // tensor 4 gets no gradient
}

ModelConfig Modelled(const std::string& planner, const Topology& where) {
  return MakeModelConfig(Compose(Parts("delayed-units", planner)), Layout(), where,
                         EvenBackward(kTensorSizes.size()), EvenCost(), 7);
}

TEST(DelayedGradients, AreTheAveragesOfTheStepBefore) {
  for (const Topology where : {Topology{1, 1}, {2, 1}, {3, 1}, {4, 2}}) {
    const auto dense = StepsOf("dense-units", "whole-model", where);
    for (const std::string& planner : kPlanners) {
      SCOPED_TRACE(planner + ", " + std::to_string(where.ranks));
      for (const RankResult& rank : StepsOf("delayed-units", planner, where)) {
        EXPECT_EQ(rank.averaged[0], std::vector<float>(rank.averaged[0].size()));
        for (std::size_t step = 1; step < rank.averaged.size(); ++step) {
          EXPECT_EQ(rank.averaged[step], dense[0].averaged[step - 1]) << step;
        }
      }
    }
  }
}

TEST(DelayedGradients, AreTheSameOnADevice) {
  for (const int workers : {1, 2, 3}) {
    for (const std::string& planner : kPlanners) {
      SCOPED_TRACE(planner + ", " + std::to_string(workers));
      const auto expected = StepsOf("delayed-units", planner, {workers, 1});
      const auto got = StepsOf("delayed-units", planner, {workers, 1}, kEmulated);
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        EXPECT_EQ(got[rank].averaged, expected[rank].averaged);
      }
    }
  }
}

TEST(DelayedGradients, AreModelledWithTheBytesThatTheySend) {
  for (const Topology where : {Topology{1, 1}, {2, 1}, {3, 1}}) {
    for (const std::string& planner : kPlanners) {
      SCOPED_TRACE(planner + ", " + std::to_string(where.ranks));
      const auto live = StepsOf("delayed-units", planner, where);
      for (const int traced : {0, where.ranks}) {
        const auto steps = SimulateSteps(Modelled(planner, where), 0, kLiveSteps, traced);
        ExpectSameCounts(steps, live);
      }
    }
  }
}

// An exchange has a whole step. If it is shorter than a step, it is fully hidden; if it is longer,
// a step lasts as long as the exchange.
TEST(DelayedGradients, HideAnExchangeBehindAStep) {
  ModelConfig model = Modelled("whole-model", {2, 1});
  const auto steady = [&] { return SimulateSteps(model, 0, 5, 2).back().records[0]; };
  const StepRecord fast = steady();
  EXPECT_EQ(fast.exposed_communication_seconds, 0);
  model.cost = DeclaredCost(0.001, 1e-4);  // 1 Mbit/s
  const StepRecord slow = steady();
  const double seconds = 8.0 * 4 * static_cast<double>(model.layout.numel()) / 1e6;
  EXPECT_NEAR(slow.step_seconds, seconds, 0.05 * seconds);
  EXPECT_GT(slow.step_seconds, fast.step_seconds);
  EXPECT_GT(slow.exposed_communication_seconds, 0);
}

TEST(DelayedGradients, AreRefusedWhereTheyHaveNoMeaning) {
  const auto why = [](const auto& change) {
    MethodParts parts = Parts("delayed-units", "whole-model");
    change(parts);
    return ErrorOf([&] { Compose(parts); });
  };
  EXPECT_SAYS(why([](MethodParts& parts) { parts.collective = "native-allreduce"; }),
              "need not go on beside training");
  EXPECT_SAYS(why([](MethodParts& parts) {
                parts.sending = {{"payload_values", std::string("f16")}};
              }),
              "sends dense gradients");
}

}  // namespace
}  // namespace sparfuse::testing

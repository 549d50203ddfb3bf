// Checks methods whose updates take the gradients of the step before, live and modelled, over ranks
// that are threads.
#include <gtest/gtest.h>

#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/modelled_as_live.hpp"

namespace sparfuse::harness {
namespace {

using testing::IntegerGradient;
using testing::kTensorSizes;

// With one unit, and with several, of which the last may go on into the next step.
const std::vector<std::string> kPlanners = {"whole-model", "layer-wise"};

CellConfig Delayed(const std::string& planner) {
  CellConfig config = ConfigOf(MethodOf("delayed-gradients"));
  config.method_options.planner = planner;
  config.method_options.planner_options = {};
  return config;
}

TEST(DelayedGradients, AreTheAveragesOfTheStepBefore) {
  for (const Topology where : {Topology{1, 1}, {2, 1}, {3, 1}, {4, 2}}) {
    for (const std::string& planner : kPlanners) {
      SCOPED_TRACE(planner + ", " + std::to_string(where.ranks));
      const auto results = RunLive(Delayed(planner), where, IntegerGradient, 4);
      const auto expected = RunLive(ConfigOf(MethodOf("dense")), where, IntegerGradient, 4);
      for (const testing::RankResult& rank : results) {
        EXPECT_EQ(rank.averaged[0], std::vector<float>(rank.averaged[0].size()));
        for (std::size_t step = 1; step < rank.averaged.size(); ++step) {
          EXPECT_EQ(rank.averaged[step], expected[0].averaged[step - 1]) << step;
        }
      }
    }
  }
}

TEST(DelayedGradients, AreModelledWithTheBytesThatTheySend) {
  for (const Topology where : {Topology{1, 1}, {2, 1}, {3, 1}}) {
    for (const std::string& planner : kPlanners) {
      SCOPED_TRACE(planner + ", " + std::to_string(where.ranks));
      const CellConfig config = Delayed(planner);
      const auto live = RunLive(config, where, IntegerGradient);
      const ModelConfig model = Modelled(config, Compose(config), Tensors(), where);
      for (const int traced : {0, where.ranks}) {
        const auto steps = SimulateSteps(model, 0, testing::kLiveSteps, traced);
        for (std::size_t s = 0; s < steps.size(); ++s) {
          for (std::size_t r = 0; r < live.size(); ++r) {
            const StepRecord &modelled = steps[s].records[r], &counted = live[r].records[s];
            EXPECT_EQ(modelled.exchanges, counted.exchanges) << s;
            EXPECT_EQ(modelled.messages_sent, counted.messages_sent) << s;
            EXPECT_EQ(modelled.sent_bytes, counted.sent_bytes) << s;
            EXPECT_EQ(modelled.received_bytes, counted.received_bytes) << s;
            EXPECT_EQ(modelled.payload_bytes, counted.payload_bytes) << s;
            EXPECT_EQ(modelled.selected, counted.selected) << s;
          }
        }
      }
    }
  }
}

// An exchange has a whole step: no time of it is exposed where a step is longer, and where it is
// shorter the rest.
TEST(DelayedGradients, HideAnExchangeBehindAStep) {
  const CellConfig config = Delayed("whole-model");
  ModelConfig model = Modelled(config, Compose(config), Tensors(), {2, 1});
  const auto steady = [&] { return SimulateSteps(model, 0, 5, 2).back().records[0]; };
  const StepRecord fast = steady();
  EXPECT_EQ(fast.exposed_communication_seconds, 0);
  const double computed = fast.step_seconds;
  model.cost = testing::DeclaredCost(0.001, 1e-4);  // 1 Mbit/s
  const StepRecord slow = steady();
  const double bits = 8.0 * 4 * static_cast<double>(model.layout.numel());
  EXPECT_NEAR(slow.step_seconds, bits / 1e6, 0.05 * bits / 1e6);
  EXPECT_GT(slow.step_seconds, computed);
  EXPECT_GT(slow.exposed_communication_seconds, 0);
}

TEST(DelayedGradients, AreRefusedWhereTheyHaveNoMeaning) {
  const auto why = [](const nlohmann::json& options) {
    return testing::ErrorOf([&] { Compose(ConfigOf(MethodOf("delayed-gradients"), "", options)); });
  };
  EXPECT_SAYS(why({{"collective", "native-allreduce"}}), "need not go on beside training");
  EXPECT_SAYS(why({{"payload_values", "f16"}}), "sends dense gradients");
  EXPECT_SAYS(why({{"delay", 2}}), "delay = 2");
  testing::ExpectError(FailureKind::kUnsupported, {"expected device \"cpu\""}, [] {
    RunLive(Delayed("whole-model"), {1, 1}, IntegerGradient, 999, testing::kEmulated);
  });
}

}  // namespace
}  // namespace sparfuse::harness

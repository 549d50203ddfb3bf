// The engine on a device does what it does on the host, bit for bit, and tells when.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "baselines/registry.hpp"
#include "core/gpu/status.hpp"
#include "tests/dropping_collective.hpp"
#include "tests/live_run.hpp"
#include "tests/planning.hpp"

namespace sparfuse {
namespace {

using testing::IntegerGradient;
using testing::kEmulated;
using testing::kTensorSizes;
using testing::RankResult;

constexpr double kDensity = 0.05;

struct Case {
  const char* name;
  const char* strategy = "ahead";
  const char* planner = "by-count";
  const char* sparsifier = "topk";
  Feedback feedback = {.kind = FeedbackKind::kResidual};
  PayloadCoding coding = {};
  const char* runs = nullptr;  // tensors 0, 2 and 4 are sent whole
  bool drops = false;
};

const Case kCases[] = {
    {.name = "ahead"},
    {.name = "behind", .strategy = "behind"},
    {.name = "dense", .strategy = "dense-units", .feedback = {}},
    {.name = "offloaded", .planner = "ssfusion"},
};

LiveConfig Configure(const Case& which, Device device, int workers) {
  const StrategyDescriptor& strategy = FindStrategy(which.strategy);
  const PlannerDescriptor& planner = FindPlanner(which.planner);
  LiveConfig config;
  for (const std::size_t n : kTensorSizes) {
    config.layout.Add("t" + std::to_string(n), {static_cast<std::int64_t>(n)}, n);
  }
  config.topology = {workers, 1};
  Options options;
  if (planner.name == "by-count") options["units"] = std::int64_t{3};
  if (planner.name == "ssfusion") {
    options["tensors_per_unit"] = std::int64_t{4};
    options["offload"] = true;
    options["partition"] = std::string("all");
  }
  config.dense_collective = &FindCollective("ring-allreduce");
  config.sparse_collective = &FindCollective("sparse-allgather");
  const BackwardProfile backward = testing::EvenBackward(kTensorSizes.size());
  const CostModel cost = testing::EvenCost();
  config.plan = planner.make(ResolveOptions(planner.name, planner.options, options))
                    ->MakePlan({config.layout, config.topology, kDensity, strategy.sparsified,
                                &backward, &cost, "dgc", config.dense_collective,
                                config.sparse_collective});
  config.strategy = strategy.make(ResolveOptions(strategy.name, strategy.options, {}));
  config.sparsifier = FindSparsifier(which.sparsifier).make({}, 1);
  config.feedback = which.feedback;
  config.coding = which.coding;
  config.device = device;
  config.deadline = testing::kLiveDeadline;
  return config;
}

class EveryCase : public ::testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(EveryCase, DoesWhatTheHostDoes) {
  const auto& [which, workers] = GetParam();
  const auto run = [&](Device device) {
    return testing::RunLive([&] { return Configure(which, device, workers); }, workers,
                            IntegerGradient);
  };
  const auto expected = run({});
  const auto results = run(kEmulated);
  for (std::size_t r = 0; r < results.size(); ++r) {
    EXPECT_EQ(results[r].averaged, expected[r].averaged);
    EXPECT_EQ(results[r].residual, expected[r].residual);
    EXPECT_EQ(results[r].mass_checks, expected[r].mass_checks);
    EXPECT_EQ(results[r].mass_violations, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCase,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace sparfuse

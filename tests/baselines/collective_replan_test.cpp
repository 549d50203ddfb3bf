// Tests that plans may change between steps under collectives that remember something of a range: a
// threshold, boundaries of regions, how much to send.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "baselines/registry.hpp"
#include "core/engine/unit_strategy.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::baselines {
namespace {

using testing::kTensorSizes;

constexpr double kDensity = 0.05;
constexpr int kWorkers = 4;

LiveConfig Configure(const std::string& collective) {
  LiveConfig config;
  for (const std::size_t n : kTensorSizes) {
    config.layout.Add("t" + std::to_string(n), {static_cast<std::int64_t>(n)}, n);
  }
  config.plan = {
      {Unit{0, 5, Sparsified::kBehind, kDensity}, Unit{5, 8, Sparsified::kBehind, kDensity}}};
  config.topology = {kWorkers, 1};
  config.strategy = std::make_unique<UnitStrategy>();
  config.sparsifier = FindSparsifier("topk").make({}, 1);
  config.feedback.kind = FeedbackKind::kResidual;
  config.dense_collective = CoreCollective("ring-allreduce");
  config.sparse_collective = MakeCollective(FindCollective(collective));
  config.deadline = testing::kLiveDeadline;
  return config;
}

// Those that sum the largest of each rank.
std::vector<std::string> SummingCollectives() {
  std::vector<std::string> names;
  for (const CollectiveDescriptor& each : Collectives()) {
    const CollectiveTraits traits = each.TraitsOf(ResolveOptions(each.name, each.options, {}));
    if (traits.sums && !traits.same_indices && !traits.by_tensor) names.emplace_back(each.name);
  }
  return names;
}

class Replanned : public ::testing::TestWithParam<std::string> {};

TEST_P(Replanned, LosesNothingAndKeepsReplicasEqual) {
  const auto results = testing::RunLive(
      [] { return Configure(GetParam()); }, kWorkers, testing::IntegerGradient, 999,
      [](LiveEngine& engine, int step) {
        if (step == 1) engine.Replan({{Unit{0, 8, Sparsified::kBehind, kDensity}}});
        if (step == 2) {
          engine.Replan(
              {{Unit{0, 2, Sparsified::kBehind, kDensity}, Unit{2, 5, Sparsified::kNever, 1},
                Unit{5, 8, Sparsified::kBehind, 2 * kDensity}}});
        }
        if (step == 3) engine.Replan({{Unit{0, 8, Sparsified::kBehind, kDensity}}});
      });
  EXPECT_EQ(testing::LostMass(results), std::vector<double>(results.front().residual.size(), 0.0));
  for (const auto& rank : results) {
    EXPECT_EQ(rank.averaged, results.front().averaged);
    EXPECT_EQ(rank.mass_violations, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, Replanned, ::testing::ValuesIn(SummingCollectives()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sparfuse::baselines

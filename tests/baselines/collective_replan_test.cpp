// Tests that plans may change between steps under collectives with a state of each range: a
// threshold, boundaries of regions, or the number of elements to send.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "baselines/registry.hpp"
#include "tests/support/live_run.hpp"

namespace sparfuse::baselines {
namespace {

constexpr double kDensity = 0.05;
constexpr int kWorkers = 4;

LiveConfig Configure(const std::string& collective) {
  LiveConfig config = testing::SparseLive(
      {{Unit{0, 5, Sparsified::kBehind, kDensity}, Unit{5, 8, Sparsified::kBehind, kDensity}}},
      {kWorkers, 1});
  config.sparse_collective = MakeCollective(FindCollective(collective));
  return config;
}

// The collectives that sum the largest elements of each rank.
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
  testing::ExpectSound(results);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Replanned, ::testing::ValuesIn(SummingCollectives()),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sparfuse::baselines

// Tests that plans may change between steps under collectives with a state of each range: a
// threshold, boundaries of regions, or the number of elements to send. Also tests that averages of
// gradients, another such state, are saved and loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "baselines/registry.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/named_part.hpp"

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
                         [](const auto& instance) { return testing::InTestName(instance.param); });

struct Remembering {
  const char* name;
  Options options;
  std::size_t arrays;
};

class AveragesOfACollective : public ::testing::TestWithParam<Remembering> {
 protected:
  static LiveConfig Made() {
    LiveConfig config = Configure("gtopk");
    config.sparse_collective = MakeCollective(FindCollective(GetParam().name), GetParam().options);
    return config;
  }
};

// Goes on from the state before step 2, and takes back the first step that it then makes.
TEST_P(AveragesOfACollective, AreSavedAndLoaded) {
  std::vector<EngineState> saved(kWorkers), again(kWorkers);
  const std::size_t arrays = GetParam().arrays;
  const auto whole = testing::RunLive(Made, kWorkers, testing::IntegerGradient, 999,
                                      [&](LiveEngine& engine, int step) {
                                        EngineState first;
                                        engine.SaveState(first);
                                        EXPECT_EQ(first.averages.size(), step == 0 ? 0u : arrays);
                                        if (step == 2)
                                          saved[static_cast<std::size_t>(engine.rank())] = first;
                                      });
  const auto rest = testing::RunLive(
      Made, kWorkers,
      [](int rank, int step, std::size_t tensor) {
        return testing::IntegerGradient(rank, std::max(step, 2), tensor);
      },
      999,
      [&](LiveEngine& engine, int step) {
        const auto rank = static_cast<std::size_t>(engine.rank());
        if (step == 1) engine.LoadState(saved[rank]);
        if (step == 1) engine.SaveState(again[rank]);
        if (step == 2) engine.LoadState(again[rank]);
      },
      testing::Unwrapped, 1);
  for (std::size_t rank = 0; rank < kWorkers; ++rank) {
    EXPECT_EQ(again[rank].averages, saved[rank].averages);
    EXPECT_NE(whole[rank].averaged[2], whole[rank].averaged[1]);
    EXPECT_EQ(rest[rank].averaged[1], whole[rank].averaged[2]);
    EXPECT_EQ(rest[rank].averaged[2], whole[rank].averaged[3]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AveragesOfACollective,
    ::testing::Values(Remembering{"arc-rows", {{"memory", std::string("ef21m")}}, 3},
                      Remembering{"moment-mask", {}, 1}),
    [](const auto& instance) { return instance.index == 0 ? "ArcRows" : "MomentMask"; });

}  // namespace
}  // namespace sparfuse::baselines

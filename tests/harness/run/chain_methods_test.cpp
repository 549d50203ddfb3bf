// Checks the laws of methods that send in several steps, beyond the laws of every method.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "tests/support/live_run.hpp"
#include "tests/support/methods/configured_method.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ExpectSound;
using testing::IntegerGradient;
using testing::kTensorSizes;
using testing::LostMass;
using testing::RankResult;

// A method with the options with which it sends in several steps.
struct Form {
  std::string method;
  json options = json::object();
};

const std::vector<Form> kForms = {{"hitopkcomm"},
                                  {"cupcake-hierarchical"},
                                  {"hipress", {{"partitions", 1}}},
                                  {"hipress", {{"partitions", 3}}},
                                  {"espresso", {{"option", 2}}},
                                  {"espresso", {{"option", 3}}},
                                  {"espresso", {{"option", 8}}},
                                  {"espresso", {{"option", 9}}},
                                  {"espresso", {{"option", 12}}}};

TEST(ChainMethods, OnNodesOfOneRankAreFlatMethods) {
  for (const auto& [chain, flat] :
       {std::pair{"cupcake-hierarchical", "cupcake"}, std::pair{"hitopkcomm", "wfbp"}}) {
    SCOPED_TRACE(chain);
    const Method method = MethodOf(chain);
    const auto results = RunLive(ConfigOf(method), {4, 1}, IntegerGradient);
    const auto expected =
        RunLive(ConfigOf(MethodOf(flat), method.sparsifier), {4, 1}, IntegerGradient);
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].averaged, expected[rank].averaged);
      EXPECT_EQ(results[rank].residual, expected[rank].residual);
    }
  }
}

// The first steps select up to a hundred times as many elements as the plan's density.
TEST(ChainMethods, LoseNothingWhileDensitiesWarmUp) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.method + form.options.dump());
    CellConfig config = ConfigOf(MethodOf(form.method), "", form.options);
    config.density = 0.001;
    config.feedback_options["warmup_epochs"] = std::int64_t{3};
    const Composition composition = Compose(config);
    const Topology topology{4, 2};
    const BackwardProfile backward = testing::EvenBackward(kTensorSizes.size());
    const CostModel cost = testing::EvenCost();
    const auto configure = [&] {
      GradientLayout layout = MakeLayout(Tensors(), config);
      Plan plan = MakePlan(composition, layout, topology, &backward, &cost);
      LiveConfig live =
          MakeLiveConfig(composition, std::move(layout), std::move(plan), topology, 7);
      live.deadline = testing::kLiveDeadline;
      return live;
    };
    const auto results = testing::RunLive(
        configure, topology.ranks, IntegerGradient, 999, [&](LiveEngine& engine, int step) {
          engine.SetDensity(composition.feedback.DensityFactor(static_cast<std::uint64_t>(step),
                                                               composition.density));
        });
    ExpectSound(results);
    EXPECT_GT(results[0].records[0].selected, 10 * results[0].records[3].selected);
  }
}

// Whatever the steps, a method reports the configured density: the number of elements of the first
// selection. Each part keeps its share, rounded down, but at least one element.
TEST(ChainMethods, ReportTheDensityOfTheFirstSelection) {
  double elements = 0;
  for (const std::size_t n : kTensorSizes) elements += static_cast<double>(n);
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.method + form.options.dump());
    const CellConfig config = ConfigOf(MethodOf(form.method), "topk", form.options);
    const auto results = RunLive(config, {4, 2}, IntegerGradient);
    double selected = 0;  // mean over ranks
    for (const RankResult& rank : results) {
      selected += static_cast<double>(rank.records[0].selected) / 4;
    }
    EXPECT_NEAR(selected / elements, config.density, 0.001);
  }
}

// The published extension drops elements: the method and the engine declare it, and mass is lost.
TEST(Hipress, DeclaresWhatOwnersWithoutAResidualLose) {
  for (const int partitions : {1, 3}) {
    for (const bool kept : {true, false}) {
      SCOPED_TRACE(std::to_string(partitions) + (kept ? ", kept" : ""));
      const CellConfig config =
          ConfigOf(MethodOf("hipress"), "", {{"partitions", partitions}, {"server_ef", kept}});
      const Composition composition = Compose(config);
      EXPECT_EQ(composition.strategy->loses(composition.strategy_options), !kept);
      const auto results = RunLive(config, {4, 1}, IntegerGradient);
      EXPECT_EQ(LostMass(results) == std::vector<double>(results.front().residual.size(), 0.0),
                kept);
      for (const RankResult& rank : results) {
        EXPECT_EQ(rank.averaged, results.front().averaged);
        EXPECT_EQ(rank.mass_violations, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::harness

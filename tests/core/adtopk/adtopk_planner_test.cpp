// Tests ADTopk's plans: the published cuts, the tensors left dense, and the tensors reduced.
#include <gtest/gtest.h>

#include <random>

#include "core/adtopk/planner.hpp"
#include "core/base/error.hpp"
#include "core/cost/cost_model.hpp"
#include "tests/support/model_layouts.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

using sparfuse::testing::PlanOf;

GradientLayout LayoutOf(const std::vector<std::vector<std::int64_t>>& shapes) {
  GradientLayout layout;
  for (const auto& shape : shapes) {
    layout.Add("t" + std::to_string(layout.tensors()), shape, ElementsOf(shape));
  }
  return layout;
}

Plan PlanOf(const PlanInput& input, const Options& options) {
  return PlanOf("adtopk", input, options);
}

// All inputs of a profiled plan. Inputs that are not set cost nothing.
struct Profile {
  GradientLayout layout;
  CostModel cost;
  BackwardProfile backward;
  Topology topology{8, 1};
  double density = 0.25;
  std::string sparsifier = "topk";

  explicit Profile(GradientLayout of, double seconds_per_byte = 1e-9) : layout(std::move(of)) {
    backward.backward_seconds.assign(layout.tensors(), 0);
    for (const char* name : {"topk", "adtopk"}) {
      cost.selection[name].Add(0.1, PiecewiseLinear({{1, 1e-6}}));
    }
    cost.links.fill(LinkCost::FromAlphaBeta(0, seconds_per_byte));
  }
  PlanInput Input() const {
    return InputOf(layout, topology, density, Sparsified::kAhead, backward, cost, sparsifier);
  }
};

std::vector<std::size_t> DenseTensors(const Plan& plan) {
  std::vector<std::size_t> dense;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    if (plan.tensors[t].density >= 1) dense.push_back(t);
  }
  return dense;
}

// ---- The authors' plans -------------------------------------------------------------------------

Options AuthorsOptions(const char* model, std::int64_t tensors_per_unit) {
  return {{"form", "authors"},
          {"model", model},
          {"partial", true},
          {"dense_below", std::int64_t{0}},
          {"tensors_per_unit", tensors_per_unit}};
}

// With units of one tensor, as published, no tensor is ever left dense.
TEST(AdtopkPlanner, AuthorsUnitsOfOneTensorLeaveNoneDense) {
  const std::vector<std::pair<const char*, GradientLayout>> models = {{"resnet50", ResNet50Cifar()},
                                                                      {"vgg16", Vgg16Cifar()},
                                                                      {"bert_base", BertBase(true)},
                                                                      {"lstm", LstmWikiText2()}};
  const std::vector<std::size_t> tensors = {161, 58, 201, 11};
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto& [model, layout] = models[i];
    const Plan plan = PlanOf({layout, {8, 1}, 0.05, Sparsified::kAhead}, AuthorsOptions(model, 1));
    EXPECT_EQ(plan.units.size(), tensors[i]) << model;
    EXPECT_TRUE(DenseTensors(plan).empty()) << model;
  }
}

TEST(AdtopkPlanner, AuthorsCutsAreThePublishedOnes) {
  const GradientLayout layout = ResNet50Cifar();
  const Plan plan =
      PlanOf({layout, {8, 1}, 0.05, Sparsified::kAhead}, AuthorsOptions("resnet50", 0));
  std::vector<std::size_t> cuts;
  for (const auto& [cut, times] : std::vector<std::pair<std::size_t, std::size_t>>{
           {2048, 4}, {1024, 7}, {512, 5}, {256, 3}, {64, 1}, {0, 1}}) {
    cuts.insert(cuts.end(), times, cut);
  }
  ASSERT_EQ(plan.units.size(), cuts.size());
  for (std::size_t u = 0; u < cuts.size(); ++u) {
    for (std::size_t t = plan.units[u].first; t < plan.units[u].last; ++t) {
      const bool dense = layout.tensor(t).numel <= cuts[u];
      EXPECT_EQ(plan.tensors[t], (TensorPlan{.density = dense ? 1.0 : 0.05})) << t;
    }
  }
}

// ---- The rules one by one -----------------------------------------------------------------------

TEST(AdtopkPlanner, ExchangesWaitForTheirTensorsAndForTheLink) {
  const auto after = [](StepTimes before, UnitWork unit) {
    const StepTimes times = After(before, unit);
    return std::pair(times.computed, times.link_free);
  };
  // The link is idle: both exchanges begin when their tensors are ready.
  EXPECT_EQ(after({10, 5}, {.until_reducible = 2, .compute = 6, .reduce = 1, .gather = 3}),
            std::pair(16.0, 19.0));
  // The all-reduce ends after the other tensors are ready: the all-gather waits for it.
  EXPECT_EQ(after({10, 5}, {.until_reducible = 2, .compute = 6, .reduce = 7, .gather = 3}),
            std::pair(16.0, 22.0));
  // An earlier unit occupies the link.
  EXPECT_EQ(after({10, 30}, {.until_reducible = 2, .compute = 6, .reduce = 1, .gather = 3}),
            std::pair(16.0, 34.0));
  // Only one exchange, or none.
  EXPECT_EQ(after({10, 30}, {.until_reducible = 0, .compute = 6, .reduce = {}, .gather = 3}),
            std::pair(16.0, 33.0));
  EXPECT_EQ(after({40, 30}, {.until_reducible = 6, .compute = 6, .reduce = 2, .gather = {}}),
            std::pair(46.0, 48.0));
  EXPECT_EQ(after({40, 30}, {}), std::pair(40.0, 30.0));
  // An exchange that takes no time still waits for its tensors.
  EXPECT_EQ(after({40, 30}, {.until_reducible = 0, .compute = 6, .reduce = {}, .gather = 0}),
            std::pair(46.0, 46.0));
}

TEST(AdtopkPlanner, ReducesTheBestSubset) {
  std::mt19937 random(3);
  std::size_t some = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<HybridTensor> tensors(random() % 7);
    for (HybridTensor& tensor : tensors) {
      tensor.elements = 1 + random() % 1000;
      tensor.kept = random() % 3 == 0 ? tensor.elements : 1 + random() % tensor.elements;
    }
    const double start_up = static_cast<double>(random() % 1500);
    const auto reduce = [&](std::size_t elements) {
      EXPECT_GT(elements, 0u);
      return start_up + static_cast<double>(elements);
    };
    const auto gather = [&](std::size_t entries) {
      EXPECT_GT(entries, 0u);
      return start_up + 4 * static_cast<double>(entries);
    };
    const auto cost = [&](const std::vector<bool>& whole) {
      std::size_t elements = 0;
      std::size_t entries = 0;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (whole[i]) {
          elements += tensors[i].elements;
        } else {
          entries += tensors[i].kept;
        }
      }
      return (elements > 0 ? reduce(elements) : 0) + (entries > 0 ? gather(entries) : 0);
    };
    const std::vector<bool> chosen = CheaperReduced(tensors, reduce, gather);
    ASSERT_EQ(chosen.size(), tensors.size());
    for (std::size_t subset = 0; subset < std::size_t{1} << tensors.size(); ++subset) {
      std::vector<bool> whole;
      for (std::size_t i = 0; i < tensors.size(); ++i) whole.push_back((subset >> i & 1) != 0);
      EXPECT_LE(cost(chosen), cost(whole));
    }
    some += std::ranges::count(chosen, true) > 0 && std::ranges::count(chosen, false) > 0;
  }
  EXPECT_GT(some, 20u);
}

// Section 3.3: P - 1 payloads of 8 bytes an element, against 4 bytes an element twice round the
// ring.
TEST(AdtopkPlanner, SendsWholeAboveOneElementInP) {
  for (const int ranks : {2, 4, 8, 16}) {
    for (const double share : {0.9, 1.1}) {
      Profile profile(LayoutOf({{160000}}));
      profile.topology = {ranks, 1};
      profile.density = share / ranks;
      const Plan plan = PlanOf(profile.Input(), {{"hybrid", true}});
      EXPECT_EQ(plan.tensors[0].reduced, share > 1) << ranks << " ranks, " << share << " / P";
      EXPECT_EQ(plan.tensors[0].density, share > 1 ? 1.0 : profile.density);
    }
  }
}

// A stem kernel of three channels keeps a third of its elements at any density.
TEST(AdtopkPlanner, CountsByFibres) {
  Profile profile(LayoutOf({{64, 3, 7, 7}}));
  profile.density = 0.01;
  EXPECT_FALSE(PlanOf(profile.Input(), {{"hybrid", true}}).tensors[0].reduced);
  profile.sparsifier = "adtopk";
  EXPECT_TRUE(PlanOf(profile.Input(), {{"hybrid", true}}).tensors[0].reduced);
  profile.topology = {2, 1};
  EXPECT_FALSE(PlanOf(profile.Input(), {{"hybrid", true}}).tensors[0].reduced);
}

// ---- Profiled plans -----------------------------------------------------------------------------

// Both units have tensors of 32 and 1024 elements at density 1/4; with either cut a unit sends 264
// entries. Sending the 32 dense saves 1 us of selection. The saving only counts if the link is idle
// when the unit is ready.
TEST(AdtopkPlanner, CutsWhereTheLinkIsIdle) {
  Profile profile(LayoutOf({{32}, {1024}, {32}, {1024}}));
  const Options options = {
      {"partial", true}, {"dense_below", std::int64_t{0}}, {"tensors_per_unit", std::int64_t{2}}};
  using Tensors = std::vector<std::size_t>;
  // An exchange takes 7 * 264 * 8 ns = 14.8 us, each selection 1 us.
  EXPECT_EQ(DenseTensors(PlanOf(profile.Input(), options)), (Tensors{0}));
  profile.backward.backward_seconds[2] = 50e-6;
  const Plan plan = PlanOf(profile.Input(), options);
  EXPECT_EQ(DenseTensors(plan), (Tensors{0, 2}));
  EXPECT_EQ(plan.tensors[1].density, 232.0 / 1024.0);  // compensates for the 32 dense elements
  // If selection takes no time, a dense tensor saves nothing.
  profile.cost.selection["topk"].Add(0.1, PiecewiseLinear({{1, 0}}));
  EXPECT_TRUE(DenseTensors(PlanOf(profile.Input(), options)).empty());
}

TEST(AdtopkPlanner, DenseBelowOverridesTheBudget) {
  // The budget is 0.01 * 111000 = 1110 elements. The dense 1,000 leave 110 of it. The dense 10,000
  // exceed it, and a tenth of the density remains.
  Profile profile(LayoutOf({{1000}, {10000}, {100000}}));
  profile.density = 0.01;
  const auto plan_with = [&](std::int64_t dense_below, const char* form) {
    return PlanOf(profile.Input(), {{"partial", true},
                                    {"form", form},
                                    {"dense_below", dense_below},
                                    {"tensors_per_unit", std::int64_t{3}}});
  };
  using Tensors = std::vector<std::size_t>;
  EXPECT_TRUE(DenseTensors(plan_with(1000, "fixed")).empty());
  EXPECT_EQ(plan_with(1000, "fixed").tensors[2].density, 0.01);
  EXPECT_EQ(DenseTensors(plan_with(1001, "fixed")), (Tensors{0}));
  EXPECT_NEAR(plan_with(1001, "fixed").tensors[2].density, 0.001, 1e-15);
  EXPECT_NEAR(plan_with(1001, "fixed").tensors[1].density, 0.001, 1e-15);
  for (const char* form : {"fixed", "profiled", "authors"}) {
    EXPECT_EQ(DenseTensors(plan_with(10001, form)), (Tensors{0, 1})) << form;
  }
  EXPECT_EQ(plan_with(10001, "fixed").tensors[2].density, 0.001);
  // Without partial sparsification the option has no effect.
  EXPECT_TRUE(DenseTensors(PlanOf(profile.Input(), {{"form", "fixed"}})).empty());
}

TEST(AdtopkPlanner, HybridReducesWhatIsDense) {
  GradientLayout layout;
  layout.Add("bias", {64}, 64, true);
  layout.Add("scale", {100}, 100);
  layout.Add("weight", {1000, 100}, 100000);
  for (const char* form : {"fixed", "profiled"}) {
    Profile profile(layout);
    profile.density = 0.01;
    Options options = {{"partial", true},
                       {"form", form},
                       {"dense_below", std::int64_t{128}},
                       {"tensors_per_unit", std::int64_t{3}}};
    Plan plan = PlanOf(profile.Input(), options);
    EXPECT_EQ(DenseTensors(plan), (std::vector<std::size_t>{0, 1})) << form;
    for (const TensorPlan& tensor : plan.tensors) EXPECT_FALSE(tensor.reduced) << form;
    options["hybrid"] = true;
    plan = PlanOf(profile.Input(), options);
    EXPECT_EQ(DenseTensors(plan), (std::vector<std::size_t>{0, 1})) << form;
    EXPECT_TRUE(plan.tensors[0].reduced) << form;
    EXPECT_TRUE(plan.tensors[1].reduced) << form;
    EXPECT_FALSE(plan.tensors[2].reduced) << form;
  }
}

// The payloads of 8 ranks carry 1,000 dense elements: 7 * 8,000 bytes. An all-reduce sends 14 * 500
// bytes and starts up 14 times more.
TEST(AdtopkPlanner, LatencyDecidesWhetherToReduce) {
  Profile profile(LayoutOf({{1000}, {400, 500}}));
  profile.density = 0.01;
  const Options options = {
      {"partial", true}, {"hybrid", true}, {"tensors_per_unit", std::int64_t{2}}};
  const double break_even = (7 * 8000 - 14 * 500) * 1e-9 / 14;
  for (const double factor : {0.99, 1.01}) {
    profile.cost.links.fill(LinkCost::FromAlphaBeta(factor * break_even, 1e-9));
    const Plan plan = PlanOf(profile.Input(), options);
    EXPECT_EQ(plan.tensors[0], (TensorPlan{.density = 1.0, .reduced = factor < 1})) << factor;
    EXPECT_LT(plan.tensors[1].density, 0.01);
  }
}

TEST(AdtopkPlanner, PlansHoldForRandomLayouts) {
  std::mt19937 random(5);
  std::size_t gathered = 0;
  std::size_t whole = 0;
  for (int trial = 0; trial < 60; ++trial) {
    GradientLayout layout;
    for (std::size_t t = 1 + random() % 70; t > 0; --t) {
      const std::int64_t rows = 1 + random() % 300;
      const std::int64_t columns = 1 + random() % (random() % 4 == 0 ? 4 : 300);
      const bool vector = random() % 3 == 0;
      layout.Add(
          "t" + std::to_string(t),
          vector ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{rows, columns},
          static_cast<std::size_t>(vector ? rows : rows * columns), random() % 8 == 0);
    }
    Profile profile(std::move(layout));
    profile.density = 0.05;
    profile.sparsifier = "adtopk";
    profile.cost.links.fill(LinkCost::FromAlphaBeta(1e-5, 1e-9));
    for (double& seconds : profile.backward.backward_seconds) {
      seconds = 1e-6 * static_cast<double>(random() % 400);
    }
    const Plan plan = PlanOf(profile.Input(), {{"partial", true},
                                               {"hybrid", true},
                                               {"buffers", std::int64_t{8}},
                                               {"dense_below", std::int64_t{500}}});
    for (std::size_t t = 0; t < profile.layout.tensors(); ++t) {
      const TensorEntry& tensor = profile.layout.tensor(t);
      const TensorPlan& how = plan.tensors[t];
      EXPECT_FALSE(how.offloaded);
      EXPECT_GE(how.density, 0.1 * profile.density);
      if (tensor.dense || tensor.numel < 500) {
        EXPECT_EQ(how.density, 1.0);
      } else {
        whole += how.reduced;
        gathered += how.density < 1;
      }
    }
  }
  EXPECT_GT(whole, 20u);
  EXPECT_GT(gathered, 20u);
}

TEST(AdtopkPlanner, FullDensityIsDenseEverywhere) {
  Profile profile(LayoutOf({{10}, {10000}, {100, 100}}));
  profile.density = 1.0;
  for (const char* form : {"fixed", "profiled", "authors"}) {
    for (const TensorPlan& tensor :
         PlanOf(profile.Input(), {{"partial", true}, {"form", form}}).tensors) {
      EXPECT_EQ(tensor, TensorPlan{}) << form;
    }
  }
}

TEST(AdtopkPlanner, AsksForAProfileWhereItNeedsOne) {
  const GradientLayout layout = LayoutOf({{10}, {10000}});
  const PlanInput input{layout, {8, 1}, 0.1, Sparsified::kAhead};
  const PlannerDescriptor& planner = FindPlanner("adtopk");
  const auto needs = [&](const Options& options) {
    return planner.needs_profile(ResolveOptions("adtopk", planner.options, options));
  };
  EXPECT_TRUE(needs({{"partial", true}}));
  EXPECT_TRUE(needs({{"hybrid", true}}));
  EXPECT_FALSE(needs({}));
  EXPECT_FALSE(needs({{"partial", true}, {"form", "fixed"}}));
  EXPECT_THROW(PlanOf(input, {{"partial", true}}), Error);
  EXPECT_EQ(PlanOf(input, {}).tensors[0], TensorPlan{.density = 0.1});
  EXPECT_THROW(PlanOf({layout, {8, 1}, 0.1, Sparsified::kBehind}, {}), Error);
}

}  // namespace
}  // namespace sparfuse::testing

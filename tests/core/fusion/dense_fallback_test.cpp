// Tests dense_fallback: predictions by hand and beside the ModelEngine. Also tests that its plans
// are never slower than the same units sent dense.
#include "core/fusion/dense_fallback.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "baselines/composition.hpp"
#include "baselines/registry.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/model_layouts.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

constexpr double kDensity = 0.01;

// The costs of a server core: a selection takes 20 us and 3e-10 s an element, a copy 2e-10 s an
// element, an average 1e-10 s an element.
CostModel CostsAt(double gbps) {
  CostModel cost;
  cost.selection["topk"].Add(kDensity, PiecewiseLinear({{0, 2e-5}, {1e8, 2e-5 + 3e-2}}));
  cost.host_selection["topk"].Add(kDensity, PiecewiseLinear({{0, 4e-5}, {1e8, 4e-5 + 1e-1}}));
  cost.pack_seconds = PiecewiseLinear({{0, 1e-6}, {1e8, 1e-6 + 2e-2}});
  cost.scale_seconds = PiecewiseLinear({{0, 1e-6}, {1e8, 1e-6 + 1e-2}});
  cost.clear_seconds = PiecewiseLinear({{0, 1e-6}, {1e8, 1e-6 + 1e-2}});
  cost.seconds_per_entry = 1e-9;
  cost.work_seconds[Work::kAdd] = 1e-10;
  cost.dispatch_seconds = 2e-6;
  cost.exchange_dispatch_seconds = 5e-6;
  cost.exchange_seconds_per_element = 1e-11;
  cost.links.fill(LinkCost::FromAlphaBeta(2e-5, 8e-9 / gbps));
  return cost;
}

// A model, its profile and a method of two parts: the complete input of a plan.
struct Case {
  GradientLayout layout;
  Topology topology{4, 1};
  BackwardProfile backward;
  CostModel cost;
  std::string strategy;
  std::unique_ptr<Sparsifier> topk;

  Case(GradientLayout tensors, double seconds_per_element, double gbps, std::string how)
      : layout(std::move(tensors)), cost(CostsAt(gbps)), strategy(std::move(how)) {
    topk = FindSparsifier("topk").make({}, 1);
    for (std::size_t t = 0; t < layout.tensors(); ++t) {
      backward.backward_seconds.push_back(seconds_per_element *
                                          static_cast<double>(layout.tensor(t).numel));
    }
    backward.tail_seconds = 1e-4;
  }
  PlanInput Input(const std::string& by) const {
    return InputOf(layout, topology, by == "dense-units" ? 1 : kDensity,
                   FindStrategy(by).sparsified, backward, cost);
  }
  PlanInput Input() const { return Input(strategy); }
  PayloadForm Form() const { return {topk.get(), {}, nullptr}; }
  Plan PlanOf(const std::string& planner, const std::string& by,
              const Options& options = {}) const {
    return testing::PlanOf(planner, Input(by), options);
  }
  double SimulatedSeconds(const Plan& plan, const std::string& by) const {
    ModelConfig model = ModelOf(layout, plan, topology);
    model.make_strategy = [&] { return FindStrategy(by).make({}); };
    model.cost = cost;
    model.backward = backward;
    return SimulateStep(model, 0, 0).records.front().step_seconds;
  }
};

std::vector<bool> DenseUnits(const Plan& plan) {
  std::vector<bool> dense;
  for (const Unit& unit : plan.units) dense.push_back(unit.sparsified == Sparsified::kNever);
  return dense;
}

// Two ranks; times in milliseconds. Copying, averaging and decompressing an element takes 1 us
// each, selecting from it `selecting` us, and 8 bytes on the link 1 us, without latency.
Case ByHand(const std::vector<std::size_t>& sizes, double selecting) {
  Case made(LayoutOf(sizes), 0.001, 1, "ahead");
  made.topology = {2, 1};
  made.backward.tail_seconds = 0;
  CostModel& cost = made.cost = {};
  const auto per_element = [](double seconds) {
    return PiecewiseLinear({{0, 0}, {1e6, 1e6 * seconds}});
  };
  cost.selection["topk"].Add(kDensity, per_element(0.001 * selecting));
  cost.pack_seconds = cost.scale_seconds = cost.clear_seconds = per_element(0.001);
  cost.links.fill(LinkCost::FromAlphaBeta(0, 1.0 / 8000));
  return made;
}

TEST(DenseFallback, PredictsByHand) {
  const Case made = ByHand({1000, 2000}, 3);
  Plan plan = made.PlanOf("layer-wise", "ahead");
  // Backward and selection take 1 + 3 and 2 + 6, and the gathers end behind them. The averages take
  // 1 and 2. 20 elements of 8 bytes of the second unit travel after its selection.
  EXPECT_NEAR(PredictedSeconds(plan, made.Input(), made.Form()), 12 + 1 + 2, 1e-9);
  // The second unit dense: 1 + 3, then 2 + 2 until it is packed. Its sum, two rounds of 4,000
  // bytes, takes 1; meanwhile the first unit is averaged. Its own average takes 2.
  plan.units[1] = {1, 2, Sparsified::kNever, 1.0};
  EXPECT_NEAR(PredictedSeconds(plan, made.Input(), made.Form()), 8 + 1 + 2, 1e-9);
  EXPECT_EQ(WithDenseFallback(made.PlanOf("layer-wise", "ahead"), made.Input(), made.Form()),
            made.PlanOf("layer-wise", "dense-units"));
}

// Milliseconds: backward and copying take 1 and 2. Beside it, selections of 3 and 6 take half as
// long again: from 2 to 6.5 and from there to 15.5. The averages take 1 and 2.
TEST(DenseFallback, PredictsTheSideLaneByHand) {
  Case made = ByHand({1000, 2000}, 3);
  made.strategy = "behind";
  made.cost.side_slowdown = 1.5;
  Plan plan = made.PlanOf("layer-wise", "behind");
  for (Unit& unit : plan.units) unit.lane = Lane::kSide;
  CheckPlan(plan, made.layout);
  const double seconds = PredictedSeconds(plan, made.Input(), made.Form());
  EXPECT_NEAR(seconds, 15.5 + 20 * 8 / 8000.0 + 2, 1e-9);
  EXPECT_NEAR(seconds, made.SimulatedSeconds(plan, "behind"), 1e-9);
  for (const Unit& unit : WithDenseFallback(plan, made.Input(), made.Form()).units) {
    EXPECT_EQ(unit.lane == Lane::kSide, unit.sparsified == Sparsified::kBehind);
  }
}

// Alone, the first unit is faster sparse. Beside the backward of the second unit, its all-reduce
// costs nothing, but its selection delays everything.
TEST(DenseFallback, LooksAtTheWholeStep) {
  Case made = ByHand({1000, 10}, 1.2);
  made.backward.backward_seconds[1] = 10;
  const Plan plan = made.PlanOf("layer-wise", "ahead");
  EXPECT_EQ(DenseUnits(WithDenseFallback(plan, made.Input(), made.Form())),
            (std::vector<bool>{true, true}));
  made.backward.backward_seconds[1] = 0;
  EXPECT_EQ(DenseUnits(WithDenseFallback(plan, made.Input(), made.Form()))[0], false);
}

TEST(DenseFallback, PredictsWhatTheModelEngineComputes) {
  for (const char* strategy : {"ahead", "behind"}) {
    for (const char* planner : {"layer-wise", "by-count", "ssfusion", "adtopk"}) {
      if (FindPlanner(planner).ahead_only && std::string(strategy) != "ahead") continue;
      SCOPED_TRACE(std::string(strategy) + ", " + planner);
      const Case made(ResNet50Cifar(), 2e-10, 10, strategy);
      Plan plan = made.PlanOf(planner, strategy);
      for (std::size_t u = 0; u < plan.units.size(); u += 3) {
        plan.units[u] = {plan.units[u].first, plan.units[u].last, Sparsified::kNever, 1.0};
        for (std::size_t t = plan.units[u].first; t < plan.units[u].last; ++t) {
          if (!plan.tensors.empty()) plan.tensors[t] = {};
        }
      }
      CheckPlan(plan, made.layout);
      const double simulated = made.SimulatedSeconds(plan, strategy);
      EXPECT_NEAR(PredictedSeconds(plan, made.Input(), made.Form()), simulated, 1e-9);
    }
  }
}

// From slow links, on which selection pays, to links that are faster than selection.
TEST(DenseFallback, IsNeverSlowerThanDenseInTheModel) {
  bool slower_without = false;
  bool all_sparse = false;
  bool mixed = false;
  for (const GradientLayout& layout : {ResNet50ImageNet(), BertBase(false)}) {
    for (const char* strategy : {"ahead", "behind"}) {
      for (const char* planner : {"layer-wise", "by-bytes", "by-count", "whole-model"}) {
        for (const double gbps : {1.0, 10.0, 25.0, 40.0, 100.0, 400.0}) {
          SCOPED_TRACE(std::string(strategy) + ", " + planner + ", " + std::to_string(gbps));
          const Case made(layout, 5e-10, gbps, strategy);
          const Plan plan = made.PlanOf(planner, strategy);
          const Plan mended = WithDenseFallback(plan, made.Input(), made.Form());
          CheckPlan(mended, layout);
          const double dense =
              made.SimulatedSeconds(made.PlanOf(planner, "dense-units"), "dense-units");
          const double sparse = made.SimulatedSeconds(plan, strategy);
          const double seconds = made.SimulatedSeconds(mended, strategy);
          EXPECT_LE(seconds, std::min(dense, sparse) + 1e-9);
          slower_without = slower_without || sparse > 1.02 * dense;
          const std::vector<bool> units = DenseUnits(mended);
          const auto count = std::count(units.begin(), units.end(), true);
          all_sparse = all_sparse || count == 0;
          mixed = mixed || (count > 0 && count < static_cast<std::ptrdiff_t>(units.size()));
        }
      }
    }
  }
  EXPECT_TRUE(slower_without);  // some plans needed the fallback
  EXPECT_TRUE(all_sparse);      // some plans needed none
  EXPECT_TRUE(mixed);
}

TEST(DenseFallback, IsRefusedWhereThereIsNoChoice) {
  MethodParts parts;
  parts.strategy = "ahead";
  parts.planner = "layer-wise";
  parts.collective = "sparse-allgather";
  parts.sending = {{"dense_fallback", true}};
  parts.sparsifier = &FindSparsifier("topk");
  parts.density = kDensity;
  parts.feedback = "residual";
  EXPECT_TRUE(Compose(parts).needs_profile());
  const auto error = [](const MethodParts& given) { return ErrorOf([&] { Compose(given); }); };

  MethodParts momentum = parts;
  momentum.feedback = "momentum";
  EXPECT_SAYS(error(momentum), "\"momentum\"");
  MethodParts naive = parts;
  naive.strategy = "safusion-naive";
  EXPECT_SAYS(error(naive), "\"safusion-naive\"");
  MethodParts quantized = parts;
  quantized.sparsifier = nullptr;
  quantized.sending["payload_dense"] = std::string("fp16");
  EXPECT_SAYS(error(quantized), "sparsifier \"none\"");
}

}  // namespace
}  // namespace sparfuse::testing

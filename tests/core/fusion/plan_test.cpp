// Tests the planners without a paper, plans, layouts, and the curves of costs.
#include "core/fusion/plan.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "baselines/registry.hpp"
#include "core/cost/cost_model.hpp"
#include "core/feedback/residual_store.hpp"
#include "core/fusion/layout.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

using sparfuse::testing::PlanOf;

Plan PlanOf(const char* name, const GradientLayout& layout, const Options& options = {}) {
  const PlanInput input{layout, {4, 1}, 0.01, Sparsified::kAhead, nullptr, nullptr};
  return PlanOf(name, input, options);
}

TEST(GradientLayout, CopiesStayAsTheyAre) {
  GradientLayout layout = LayoutOf({10, 20});
  const GradientLayout copy = layout;
  EXPECT_EQ(&copy.tensor(1), &layout.tensor(1));  // until one of them changes
  layout.Add("third", {5}, 5, true);
  GradientLayout apart = layout;
  layout.Add("fourth", {7}, 7);
  apart.SetDenseApart();
  layout.SetDenseApart();
  EXPECT_EQ(copy.tensors(), 2u);
  EXPECT_EQ(copy.numel(), 30u);
  EXPECT_EQ(apart.tensors(), 3u);
  EXPECT_EQ(apart.tensor(2).offset, 30u);
  EXPECT_EQ(layout.tensor(2).offset, 37u);
  EXPECT_EQ(layout.tensor(3).offset, 30u);
}

TEST(Planners, CutAsTheirNamesSay) {
  const GradientLayout layout = LayoutOf({10, 20, 30, 5, 100, 1, 1});
  EXPECT_EQ(PlanOf("layer-wise", layout).UnitSizes(), "1,1,1,1,1,1,1");
  EXPECT_EQ(PlanOf("whole-model", layout).UnitSizes(), "7");
  EXPECT_EQ(PlanOf("by-count", layout, {{"units", std::int64_t{3}}}).UnitSizes(), "3,3,1");
  EXPECT_EQ(PlanOf("by-count", layout, {{"tensors_per_unit", std::int64_t{2}}}).UnitSizes(),
            "2,2,2,1");
  // 200 bytes are 50 floats: 10 + 20 fit, 30 more do not. 100 exceeds a unit and stays alone.
  EXPECT_EQ(PlanOf("by-bytes", layout, {{"threshold_bytes", 200.0}}).UnitSizes(), "2,2,1,2");
}

// The sizes of PyTorch's compute_bucket_assignment_by_size for limits of (first, cap) bytes.
TEST(Planners, DdpClosesABucketWithTheTensorThatReachesItsSize) {
  const GradientLayout layout = LayoutOf({10, 20, 30, 5, 100, 1, 1});
  const auto plan = [&](double first, double cap) {
    return PlanOf("ddp-buckets", layout, {{"first_bucket_bytes", first}, {"bucket_bytes", cap}})
        .UnitSizes();
  };
  EXPECT_EQ(plan(40, 200), "1,2,2,2");  // 40; 80 + 120; 20 + 400; the remainder
  EXPECT_EQ(plan(41, 120), "2,1,2,2");  // 40 + 80; 120; 20 + 400; the remainder
  EXPECT_EQ(plan(1, 1), "1,1,1,1,1,1,1");
  EXPECT_EQ(plan(668, 1), "7");  // all 167 floats
  EXPECT_EQ(plan(1e6, 1e6), "7");
}

TEST(Planners, AFusionDegreeIsThePartOfTheTensorsThatIsOneUnit) {
  const GradientLayout layout = LayoutOf({10, 20, 30, 5, 100, 1, 1});
  const auto plan = [&](double degree) {
    return PlanOf("fusion-degree", layout, {{"degree", degree}}).UnitSizes();
  };
  EXPECT_EQ(plan(0), "1,1,1,1,1,1,1");
  EXPECT_EQ(plan(0.1), "1,1,1,1,1,1,1");  // 0.7 of a tensor: a unit of one tensor
  EXPECT_EQ(plan(0.3), "2,1,1,1,1,1");    // 2.1
  EXPECT_EQ(plan(0.5), "4,1,1,1");        // 3.5
  EXPECT_EQ(plan(0.9), "6,1");            // 6.3
  EXPECT_EQ(plan(1), "7");
}

TEST(Planners, GivenUnitsAreTheUnits) {
  const GradientLayout layout = LayoutOf({10, 20, 30, 5, 100, 1, 1});
  const auto units = [](const char* text) { return Options{{"units", std::string(text)}}; };
  const auto bytes = [](const char* text) { return Options{{"bytes", std::string(text)}}; };
  EXPECT_EQ(PlanOf("given", layout).UnitSizes(), "7");
  EXPECT_EQ(PlanOf("given", layout, units("3,1,3")).UnitSizes(), "3,1,3");
  EXPECT_EQ(PlanOf("given", layout, bytes("120,140,408")).UnitSizes(), "2,2,3");
  EXPECT_EQ(PlanOf("given", layout, units("7")).units.front().density, 0.01);
  const auto says = [&](const Options& options, const std::string& part) {
    EXPECT_SAYS(ErrorOf([&] { PlanOf("given", layout, options); }), part);
  };
  says(units("3,1,2"), "units = \"3,1,2\": they add up to 6; expected the 7 tensors");
  says(units("3,5"), "they add up to more; expected the 7 tensors");
  says(units("18446744073709551615,8"), "they add up to more; expected the 7 tensors");
  says(units("18446744073709551616"), "expected integers of at least 1");
  for (const char* wrong : {"3,,4", "3,4,", "3, 4", "0,7", "-7", "seven"}) {
    says(units(wrong), std::string("units = \"") + wrong + "\": expected integers of at least 1");
  }
  says(bytes("120,540"), "bytes = \"120,540\": they add up to 660; expected the 668 bytes");
  says(bytes("120,100,448"), "unit 2 ends within tensor t2; expected 120");
  says(bytes("100,568"), "unit 1 ends within tensor t1; expected 40 or 120");
  says({{"units", std::string("7")}, {"bytes", std::string("668")}}, "expected one of the two");
}

TEST(Planners, CoverEveryLayoutOnce) {
  for (const PlannerDescriptor& planner : Planners()) {
    for (const std::size_t tensors : {1u, 2u, 19u, 20u, 21u, 161u}) {
      GradientLayout layout;
      for (std::size_t t = 0; t < tensors; ++t) layout.Add("t", {1}, 1 + 977 * t % 5000);
      const BackwardProfile backward = EvenBackward(tensors);
      const CostModel cost = EvenCost();
      const PlanInput input = InputOf(layout, {4, 1}, 0.1, Sparsified::kAhead, backward, cost);
      EXPECT_NO_THROW(PlanOf(planner.name, input)) << planner.name << " with " << tensors;
    }
  }
}

// Stored trials are checked by it (harness/store/evidence).
TEST(Planners, KeepTheDensityIfTheySaySo) {
  GradientLayout layout;
  for (std::size_t t = 0; t < 41; ++t) layout.Add("t", {1}, 1 + 977 * t % 5000);
  const BackwardProfile backward = EvenBackward(41);
  const CostModel cost = EvenCost();
  std::size_t that_do = 0;
  for (const PlannerDescriptor& planner : Planners()) {
    if (!planner.keeps_density) continue;
    ++that_do;
    const Plan plan =
        PlanOf(planner.name, InputOf(layout, {4, 1}, 0.1, Sparsified::kAhead, backward, cost));
    for (std::size_t t = 0; t < 41; ++t)
      EXPECT_EQ(plan.TensorOf(layout, t), TensorPlan{.density = 0.1}) << planner.name << ": " << t;
  }
  EXPECT_GT(that_do, 0u);
}

TEST(Plan, HashTellsPlansApart) {
  const GradientLayout layout = LayoutOf({10, 20, 30});
  EXPECT_EQ(PlanOf("layer-wise", layout).Hash(), PlanOf("layer-wise", layout).Hash());
  EXPECT_NE(PlanOf("layer-wise", layout).Hash(), PlanOf("whole-model", layout).Hash());
  // Each member of a unit alone changes the hash, however its neighbours are packed beside it.
  const Unit unit{0, 3, Sparsified::kBehind, 0.1, Lane::kCompute, 1, 0};
  const auto with = [unit](auto change) {
    Unit changed = unit;
    change(changed);
    return Plan{.units = {changed}}.Hash();
  };
  const std::vector<std::uint64_t> hashes = {
      with([](Unit&) {}),
      with([](Unit& u) { u.sparsified = Sparsified::kAhead; }),
      with([](Unit& u) { u.density = 0.2; }),
      with([](Unit& u) { u.lane = Lane::kSide; }),
      with([](Unit& u) { u.lane = Lane::kHost; }),
      with([](Unit& u) { u.partitions = 2; }),
      with([](Unit& u) { u.partitions = 257; }),
      with([](Unit& u) { u.partitions = 65535; }),
      with([](Unit& u) { u.path = 1; }),
      with([](Unit& u) { u.path = 255; }),
  };
  EXPECT_EQ(std::set<std::uint64_t>(hashes.begin(), hashes.end()).size(), hashes.size());
}

TEST(Plan, RefusesWhatDoesNotCover) {
  const GradientLayout layout = LayoutOf({10, 20, 30});
  const auto unit = [](std::size_t first, std::size_t last) {
    return Unit{first, last, Sparsified::kNever, 1.0};
  };
  EXPECT_THROW(CheckPlan({{unit(0, 2)}}, layout), Error);
  EXPECT_THROW(CheckPlan({{unit(0, 2), unit(1, 3)}}, layout), Error);
  EXPECT_THROW(CheckPlan({{unit(0, 2), unit(2, 4)}}, layout), Error);
  EXPECT_THROW(CheckPlan({{unit(0, 0), unit(0, 3)}}, layout), Error);
  const auto on = [](Sparsified how, Lane lane) { return Plan{{Unit{0, 3, how, 0.1, lane}}}; };
  EXPECT_NO_THROW(CheckPlan(on(Sparsified::kBehind, Lane::kSide), layout));
  EXPECT_THROW(CheckPlan(on(Sparsified::kBehind, Lane::kHost), layout), Error);
  EXPECT_THROW(CheckPlan(on(Sparsified::kAhead, Lane::kSide), layout), Error);
  EXPECT_THROW(CheckPlan(on(Sparsified::kNever, Lane::kSide), layout), Error);
}

TEST(Layout, OffsetsFollowReadyOrder) {
  const GradientLayout layout = LayoutOf({10, 20, 30});
  EXPECT_EQ(layout.numel(), 60u);
  EXPECT_EQ(layout.tensor(2).range(), (Range{30, 60}));
  EXPECT_EQ(layout.RangeOf(1, 3), (Range{10, 60}));
}

TEST(ResidualStore, KeepsNamesApart) {
  ResidualStore store(100);
  store.Get("local", {10, 20}).host()[0] = 3;
  store.Get("server", {10, 20}).host()[0] = 4;
  EXPECT_EQ(store.Get("local", {0, 100}).host()[10], 3);
  EXPECT_EQ(store.Get("local", {0, 100}).host()[11], 0);
  EXPECT_DOUBLE_EQ(store.Norm(), 5);
}

TEST(PiecewiseLinear, InterpolatesAndExtends) {
  const PiecewiseLinear curve({{10, 1}, {20, 3}});
  EXPECT_EQ(curve(0), 1);
  EXPECT_EQ(curve(15), 2);
  EXPECT_EQ(curve(30), 5);
  EXPECT_EQ(PiecewiseLinear()(7), 0);
  EXPECT_EQ(PiecewiseLinear({{3, 2}})(100), 2);
}

TEST(SelectionCost, InterpolatesInTheLogarithmOfDensity) {
  SelectionCost cost;
  cost.Add(0.001, PiecewiseLinear({{1, 1}}));
  cost.Add(0.1, PiecewiseLinear({{1, 3}}));
  EXPECT_DOUBLE_EQ(cost(5, 0.001), 1);
  EXPECT_DOUBLE_EQ(cost(5, 0.01), 2);
  EXPECT_DOUBLE_EQ(cost(5, 1), 3);
  EXPECT_DOUBLE_EQ(cost(5, 1e-6), 1);
}

GradientLayout Layout() {
  GradientLayout layout;
  layout.Add("a", {4}, 4);
  layout.Add("bias", {2}, 2, true);
  layout.Add("b", {3}, 3);
  layout.Add("norm", {1}, 1, true);
  layout.Add("c", {5}, 5);
  return layout;
}

std::vector<std::size_t> In(const GradientLayout& layout, Range range) {
  std::vector<std::size_t> positions;
  for (const std::size_t t : layout.TensorsIn(range)) positions.push_back(t);
  return positions;
}

TEST(GradientLayout, TensorsLieInReadyOrder) {
  const GradientLayout layout = Layout();
  EXPECT_FALSE(layout.dense_apart());
  EXPECT_EQ(layout.RangeOf(0, 3), (Range{0, 9}));
  EXPECT_EQ(layout.PositionOf(5), 1u);
  EXPECT_EQ(In(layout, {5, 10}), (std::vector<std::size_t>{1, 2, 3}));
}

TEST(GradientLayout, DenseTensorsApartLieBehindTheOthers) {
  GradientLayout layout = Layout();
  layout.SetDenseApart();
  EXPECT_TRUE(layout.dense_apart());
  EXPECT_EQ(layout.numel(), 15u);
  EXPECT_EQ(layout.tensor(2).range(), (Range{4, 7}));
  EXPECT_EQ(layout.tensor(1).range(), (Range{12, 14}));
  EXPECT_EQ(layout.tensor(3).range(), (Range{14, 15}));
  EXPECT_EQ(layout.RangeOf(0, 5), (Range{0, 12})) << "a unit is what can be sparsified of it";
  EXPECT_EQ(layout.RangeOf(1, 3), (Range{4, 7}));
  EXPECT_EQ(layout.RangeOf(3, 4).size(), 0u);
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    EXPECT_EQ(layout.PositionOf(layout.tensor(t).offset), t);
    EXPECT_EQ(layout.PositionOf(layout.tensor(t).range().end - 1), t);
  }
  EXPECT_EQ(In(layout, {3, 13}), (std::vector<std::size_t>{0, 2, 4, 1}));
}

}  // namespace
}  // namespace sparfuse::testing

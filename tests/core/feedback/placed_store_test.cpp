// Tests residuals that move between a device and the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/feedback/residual_store.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse {
namespace {

constexpr Device kDevice{DeviceKind::kEmulated, 0};

GradientLayout Layout() { return testing::LayoutOf({3, 5, 2}); }

std::vector<float> Values(std::span<const float> values) { return {values.begin(), values.end()}; }

// The memory of the emulated device is host memory.
void Fill(DeviceSpan<float> at, float value) { std::fill_n(at.data, at.size, value); }

TEST(PlacedStore, IsAResidualStoreOnTheHost) {
  const GradientLayout layout = Layout();
  PlacedStore store(layout, {});
  Fill(store.Get("local", {3, 8}, {}), 2);
  EXPECT_EQ(Values(store.Read("local", {2, 4})), (std::vector<float>{0, 2}));
  EXPECT_DOUBLE_EQ(store.Norm(), std::sqrt(20));
}

TEST(PlacedStore, MovesTensorsToWhereTheyAreAskedFor) {
  const GradientLayout layout = Layout();
  PlacedStore store(layout, kDevice);
  EXPECT_EQ(Values(store.Read("local", {0, 10})), std::vector<float>(10));
  Fill(store.Get("local", {0, 8}, kDevice), 1);
  Fill(store.Get("local", {8, 10}, {}), 3);
  const std::vector<float> expected{1, 1, 1, 1, 1, 1, 1, 1, 3, 3};
  EXPECT_EQ(Values(store.Read("local", {0, 10})), expected);
  EXPECT_DOUBLE_EQ(store.Norm(), std::sqrt(8 + 18));

  const DeviceSpan<float> moved = store.Get("local", {3, 8}, {});  // to the host
  EXPECT_EQ(moved.stream.device.kind, DeviceKind::kHost);
  EXPECT_EQ(Values(moved.host()), std::vector<float>(5, 1));
  EXPECT_EQ(Values(store.Read("local", {0, 10})), expected);
  EXPECT_DOUBLE_EQ(store.Norm(), std::sqrt(8 + 18));  // nothing counts twice

  Fill(moved, 4);
  const DeviceSpan<float> back = store.Get("local", {0, 10}, kDevice);  // all of it
  EXPECT_EQ(back.stream.device, kDevice);
  EXPECT_EQ(Values({back.data, back.size}), (std::vector<float>{1, 1, 1, 4, 4, 4, 4, 4, 3, 3}));
  EXPECT_EQ(Values(store.Read("other", {0, 2})), std::vector<float>(2));
}

// A step that takes a range apart, one in place, and leaves one alone.
void Step(ResidualStore& store, float add) {
  store.BeginUndoable();
  const auto [from, to] = store.GetApart("local", {2, 6});
  for (std::size_t i = 0; i < from.size; ++i)
    (to.size > 0 ? to.data : from.data)[i] = from.data[i] + add;
  const DeviceSpan<float> own = store.Get("local", {6, 9});
  for (std::size_t i = 0; i < own.size; ++i) own.data[i] += 10 * add;
  EXPECT_EQ(store.GetApart("local", {5, 7}).to.size, 0u);  // taken already: in place
  store.Settle();
}

TEST(ResidualStore, StepIsUndoneAndGoesOn) {
  ResidualStore store(10, {}, 3);
  const auto all = [&] { return Values(store.Get("local", {0, 10}).host()); };
  Fill(store.Get("local", {0, 10}), 1);
  Step(store, 1);
  const std::vector<float> one{1, 1, 2, 2, 2, 2, 11, 11, 11, 1};
  EXPECT_EQ(all(), one);
  Step(store, 2);
  EXPECT_EQ(all(), (std::vector<float>{1, 1, 4, 4, 4, 4, 31, 31, 31, 1}));
  store.Undo();
  EXPECT_EQ(all(), one);
  Step(store, 3);
  const std::vector<float> three{1, 1, 5, 5, 5, 5, 41, 41, 41, 1};
  EXPECT_EQ(all(), three);
  store.Get("local", {9, 10}).data[0] = 7;  // between steps
  Step(store, 1);
  EXPECT_EQ(all(), (std::vector<float>{1, 1, 6, 6, 6, 6, 51, 51, 51, 7}));
  EXPECT_DOUBLE_EQ(store.Norm(), std::sqrt(2 + 4 * 36 + 3 * 51 * 51 + 49));
}

TEST(ResidualStore, StepsWithoutReadersKeepWhatTheyDoNotTake) {
  ResidualStore store(10);
  Fill(store.Get("local", {0, 10}), 1);
  for (int step = 0; step < 3; ++step) {
    Step(store, 1);
    if (step == 1) store.Undo();
  }
  EXPECT_EQ(Values(store.Get("local", {0, 10}).host()),
            (std::vector<float>{1, 1, 3, 3, 3, 3, 21, 21, 21, 1}));
}

TEST(ResidualStore, ResidualOfAnUndoneFirstStepIsZero) {
  ResidualStore store(10);
  Step(store, 1);
  store.Undo();
  EXPECT_EQ(Values(store.Get("local", {0, 10}).host()), std::vector<float>(10));
}

TEST(RangeSet, JoinsCutsAndReportsParts) {
  RangeSet set;
  const auto parts = [&](Range within) {
    std::vector<std::size_t> ends;
    set.ForParts(within, [&](Range part) { ends.insert(ends.end(), {part.begin, part.end}); });
    return ends;
  };
  set.Add({4, 6});
  set.Add({8, 10});
  set.Add({6, 7});
  EXPECT_EQ(parts({0, 20}), (std::vector<std::size_t>{4, 7, 8, 10}));
  set.Add({7, 8});
  EXPECT_EQ(parts({5, 9}), (std::vector<std::size_t>{5, 9}));
  set.Remove({5, 6});
  set.Remove({9, 30});
  EXPECT_EQ(parts({0, 20}), (std::vector<std::size_t>{4, 5, 6, 9}));
  EXPECT_TRUE(set.Overlaps({8, 12}));
  EXPECT_FALSE(set.Overlaps({9, 12}));
  EXPECT_FALSE(set.Overlaps({5, 6}));
  set.Clear();
  EXPECT_FALSE(set.Overlaps({0, 20}));
}

}  // namespace
}  // namespace sparfuse

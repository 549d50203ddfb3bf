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

}  // namespace
}  // namespace sparfuse

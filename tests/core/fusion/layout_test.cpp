// Tests where tensors lie in the flat gradient when dense ones are kept apart.
#include "core/fusion/layout.hpp"

#include <gtest/gtest.h>

namespace sparfuse {
namespace {

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
}  // namespace sparfuse

// Tests sums of sparse payloads by hand, and against maps of random payloads.
#include "core/payload/sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

using Elements = std::map<std::uint32_t, float>;

SparseSums SumsOf(const Elements& elements) {
  SparseSums sums;
  for (const auto& [index, value] : elements) sums.Add(index, value);
  return sums;
}

Elements ElementsOf(const SparseSums& sums) {
  Elements elements;
  for (std::size_t i = 0; i < sums.size(); ++i) elements[sums.indices[i]] = sums.values[i];
  return elements;
}

Elements Random(std::mt19937& random, std::size_t count, std::uint32_t below) {
  Elements made;
  while (made.size() < count)
    made[static_cast<std::uint32_t>(random() % below)] = static_cast<float>(random() % 21) - 10;
  return made;
}

TEST(SparseSums, MergeAddsWhatBothHave) {
  const SparseSums a = SumsOf({{1, 1.0f}, {4, 2.0f}, {9, 3.0f}});
  const SparseSums b = SumsOf({{0, 5.0f}, {4, -2.0f}, {10, 1.0f}});
  SparseSums sum;
  Merge(a.view(), b.view(), sum);
  EXPECT_EQ(sum.indices, (std::vector<std::uint32_t>{0, 1, 4, 9, 10}));
  EXPECT_EQ(sum.values, (std::vector<float>{5, 1, 0, 3, 1})) << "a sum of 0 stays";
  Merge(a.view(), {}, sum);
  EXPECT_EQ(ElementsOf(sum), ElementsOf(a));
  Merge({}, {}, sum);
  EXPECT_EQ(sum.size(), 0u);
}

TEST(SparseSums, MergeOfRandomOnesIsThatOfMaps) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    const Elements a = Random(random, random() % 40, 100);
    const Elements b = Random(random, random() % 40, 100);
    Elements expected = a;
    for (const auto& [index, value] : b) expected[index] += value;
    SparseSums sum;
    Merge(SumsOf(a).view(), SumsOf(b).view(), sum);
    ASSERT_EQ(ElementsOf(sum), expected);
    ASSERT_EQ(sum.size(), expected.size());
  }
}

TEST(SparseSums, SliceIsByIndex) {
  const SparseSums sums = SumsOf({{2, 1.0f}, {5, 2.0f}, {7, 3.0f}});
  EXPECT_EQ(Slice(sums.view(), 0, 2).indices.size(), 0u);
  EXPECT_EQ(SparseSums(Slice(sums.view(), 2, 7)).values, (std::vector<float>{1, 2}));
  EXPECT_EQ(SparseSums(Slice(sums.view(), 6, 100)).indices, (std::vector<std::uint32_t>{7}));
}

TEST(SparseSums, KeepLargestBreaksTiesByIndex) {
  const SparseSums from = SumsOf({{0, 1.0f}, {1, -3.0f}, {2, 3.0f}, {3, 3.0f}, {4, 5.0f}});
  SparseSums kept, rest;
  KeepLargest(from.view(), 3, kept, rest);
  EXPECT_EQ(kept.indices, (std::vector<std::uint32_t>{1, 2, 4}));
  EXPECT_EQ(rest.indices, (std::vector<std::uint32_t>{0, 3}));
  KeepLargest(from.view(), 0, kept, rest);
  EXPECT_EQ(kept.size(), 0u);
  EXPECT_EQ(rest.size(), 5u);
  KeepLargest(from.view(), 5, kept, rest);
  EXPECT_EQ(kept.size(), 5u);
  EXPECT_EQ(rest.size(), 0u);
}

TEST(SparseSums, WhatIsNotFiniteIsKept) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  SparseSums kept, rest;
  KeepLargest(SumsOf({{0, 1e30f}, {1, nan}, {2, -infinity}, {3, 2e30f}}).view(), 2, kept, rest);
  EXPECT_EQ(kept.indices, (std::vector<std::uint32_t>{1, 2}));
}

TEST(SparseSums, KthMagnitude) {
  const std::vector<float> values = {1, -4, 2, 4};
  EXPECT_EQ(KthMagnitude(values, 1), 4.0f);
  EXPECT_EQ(KthMagnitude(values, 3), 2.0f);
  EXPECT_EQ(KthMagnitude(values, 0), 0.0f);
  EXPECT_EQ(KthMagnitude(values, 5), 0.0f);
}

// Many values with equal upper bits, zeros of either sign, denormals, and values that are not
// finite.
TEST(SparseSums, KthMagnitudeIsThatOfSortedOnes) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values = {0.0f, -0.0f, 1e-45f, -1e-40f, 3e38f, -INFINITY, NAN};
  for (int i = 0; i < 300; ++i) values.push_back(normal(random));
  for (int i = 0; i < 300; ++i) values.push_back(1 + 1e-3f * normal(random));
  std::vector<float> magnitudes;
  for (const float value : values) magnitudes.push_back(MagnitudeOf(value));
  std::ranges::sort(magnitudes, std::greater<>());
  for (std::size_t k = 1; k <= values.size(); ++k) {
    ASSERT_EQ(KthMagnitude(values, k), magnitudes[k - 1]) << k;
  }
}

TEST(AreIncreasing, ComparesWithoutSignAndEveryPair) {
  EXPECT_TRUE(AreIncreasing({}));
  EXPECT_TRUE(AreIncreasing(std::vector<std::uint32_t>{7}));
  EXPECT_TRUE(AreIncreasing(std::vector<std::uint32_t>{0, 0x7fffffff, 0x80000000, 0xffffffff}));
  EXPECT_FALSE(AreIncreasing(std::vector<std::uint32_t>{0x80000000, 0x7fffffff}));
  for (std::size_t at = 1; at < 100; ++at) {
    std::vector<std::uint32_t> indices(100);
    std::ranges::generate(indices, [next = 0u]() mutable { return next += 3; });
    EXPECT_TRUE(AreIncreasing(indices));
    indices[at] = indices[at - 1];
    EXPECT_FALSE(AreIncreasing(indices)) << at;
  }
}

TEST(RangeSums, AddsInOrderAndKeepsSumsOfZero) {
  RangeSums sums;
  sums.Reset(100, 300);
  sums.Add(SumsOf({{100, 1.0f}, {170, 2.0f}, {299, 3.0f}}).view());
  sums.Add(SumsOf({{100, -1.0f}, {171, 4.0f}}).view());
  SparseSums out;
  sums.AppendTo(out);
  EXPECT_EQ(out.indices, (std::vector<std::uint32_t>{100, 170, 171, 299}));
  EXPECT_EQ(out.values, (std::vector<float>{0, 2, 4, 3}));
  EXPECT_EQ(sums.count(), 4u);
  EXPECT_THROW(sums.Add(SumsOf({{99, 1.0f}}).view()), Error);
  EXPECT_THROW(sums.Add(SumsOf({{300, 1.0f}}).view()), Error);
  sums.Reset(0, 10);
  EXPECT_EQ(sums.count(), 0u);
}

}  // namespace
}  // namespace sparfuse

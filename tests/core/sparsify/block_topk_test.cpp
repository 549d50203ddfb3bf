// Tests block top-k by its definition, on integers, whose sums of squares are exact.
#include <gtest/gtest.h>

#include <numeric>

#include "core/sparsify/descriptors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

Options BlocksOf(std::int64_t block) { return {{"block", block}}; }

std::vector<std::uint32_t> IndicesOf(std::int64_t block, const std::vector<float>& x,
                                     double density) {
  Selection selection(MakeSparsifier("block-topk", BlocksOf(block)), x.size(), density, 1, false);
  return selection.Run(x, 0).indices;
}

// Takes elements from the blocks in the order of their energies until there are `count`.
std::vector<std::uint32_t> ByDefinition(const std::vector<float>& x, std::size_t block,
                                        double density) {
  const std::size_t n = x.size();
  const std::size_t k = KeptCount(n, density);
  const std::size_t count = std::min(n, (k + block - 1) / block * block);
  std::vector<double> energies((n + block - 1) / block, 0.0);
  for (std::size_t i = 0; i < n; ++i) energies[i / block] += static_cast<double>(x[i]) * x[i];
  std::vector<std::size_t> order(energies.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return energies[a] > energies[b]; });
  std::vector<std::uint32_t> indices;
  for (const std::size_t b : order) {
    for (std::size_t i = b * block; i < std::min(n, (b + 1) * block); ++i) {
      if (indices.size() < count) indices.push_back(static_cast<std::uint32_t>(i));
    }
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

// Blocks of two with energies 5, 4, 16, 2. k = 1, 2 keeps one block. k = 3 keeps two: the one with
// a single large element, and the first.
TEST(BlockTopK, KeepsWholeBlocksThatReachTheCount) {
  const std::vector<float> x = {1, 2, -2, 0, 0, 4, 1, -1};
  EXPECT_EQ(IndicesOf(2, x, 1.0 / 8), (std::vector<std::uint32_t>{4, 5}));
  EXPECT_EQ(IndicesOf(2, x, 2.0 / 8), (std::vector<std::uint32_t>{4, 5}));
  EXPECT_EQ(IndicesOf(2, x, 3.0 / 8), (std::vector<std::uint32_t>{0, 1, 4, 5}));
  EXPECT_EQ(IndicesOf(2, x, 5.0 / 8), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(BlockTopK, TiesGoToTheLowerBlock) {
  EXPECT_EQ(IndicesOf(2, {1, 0, 0, -1, 1, 0, 0, 1}, 0.5), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(IndicesOf(3, std::vector<float>(9, 0.0f), 0.1), (std::vector<std::uint32_t>{0, 1, 2}));
}

// Seven elements in blocks of three: the last block has a single element, which is the largest. Two
// elements of the next largest block complete the count of three.
TEST(BlockTopK, TheNextBlockFillsUpForTheShorterLast) {
  const std::vector<float> x = {1, 1, 1, 0, 3, 0, -9};
  EXPECT_EQ(BlockTopKCount(7, 3, 0.01), 3u);
  EXPECT_EQ(IndicesOf(3, x, 0.01), (std::vector<std::uint32_t>{3, 4, 6}));
  EXPECT_EQ(IndicesOf(3, x, 4.0 / 7), (std::vector<std::uint32_t>{0, 1, 3, 4, 5, 6}));
  EXPECT_EQ(IndicesOf(3, x, 1.0), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(BlockTopK, CountsBlocks) {
  EXPECT_EQ(BlockTopKCount(1'000'000, 256, 0.01), 40u * 256);  // 10,000 elements in 39.06 blocks
  EXPECT_EQ(BlockTopKCount(1'000'000, 1, 0.01), 10'000u);
  EXPECT_EQ(BlockTopKCount(100, 256, 0.01), 100u) << "a block has no more elements than the tensor";
  EXPECT_EQ(BlockTopKCount(300, 256, 0.9), 300u);
}

// With blocks of one element it equals top-k.
TEST(BlockTopK, HoldsByDefinitionForEveryBlockDensityAndPool) {
  std::mt19937 random(3);
  for (const std::size_t n : {1, 255, 1025, 20'000, 300'007}) {
    std::vector<float> x(n);
    for (float& v : x) v = static_cast<float>(static_cast<int>(random() % 15) - 7);
    for (const std::int64_t block : {1, 3, 256, 5000}) {
      const auto sparsifier = MakeSparsifier("block-topk", BlocksOf(block));
      for (const double density : {1e-9, 0.01, 0.3, 0.999}) {
        const auto expected = ByDefinition(x, static_cast<std::size_t>(block), density);
        for (const int threads : {1, 3}) {
          for (const bool feedback : {false, true}) {
            Selection selection(*sparsifier, n, density, threads, feedback);
            const Selected selected = selection.Run(x, 0);
            ASSERT_EQ(selected.indices, expected)
                << "n=" << n << " block=" << block << " density=" << density;
            for (std::size_t i = 0; i < expected.size(); ++i) {
              ASSERT_EQ(selected.values[i], x[expected[i]]);
            }
            ASSERT_TRUE(selection.GuardsIntact());
            if (block == 1) {
              ASSERT_EQ(expected, LargestByDefinition(x, KeptCount(n, density)).indices);
            }
          }
        }
      }
    }
  }
}

// m of B blocks guarantee m / B; the descriptor's contraction holds for every block size.
TEST(BlockTopK, PromisesNoMoreThanAnyBlockKeeps) {
  const auto contraction = FindSparsifier("block-topk").contraction;
  for (const std::int64_t n : {1, 2, 100, 257, 1000}) {
    const std::vector<std::int64_t> shape = {n};
    for (const double density : {0.001, 0.01, 0.5, 0.99}) {
      const auto elements = static_cast<std::size_t>(n);
      const double promised = contraction(shape, density);
      EXPECT_GT(promised, 0);
      for (std::size_t block = 1; block <= 2 * elements; ++block) {
        const std::size_t blocks = (elements + block - 1) / block;
        const std::size_t kept = (KeptCount(elements, density) + block - 1) / block;
        ASSERT_LE(promised, static_cast<double>(kept) / static_cast<double>(blocks))
            << "n=" << n << " block=" << block << " density=" << density;
      }
    }
    EXPECT_EQ(contraction(shape, 1.0), 1.0);
  }
}

TEST(BlockTopK, SaysWhatItSelectsTogether) {
  EXPECT_EQ(MakeSparsifier("block-topk")->block(), 256u);
  EXPECT_EQ(MakeSparsifier("block-topk", BlocksOf(64))->block(), 64u);
  EXPECT_EQ(MakeSparsifier("topk")->block(), 1u);
}

}  // namespace
}  // namespace sparfuse::testing

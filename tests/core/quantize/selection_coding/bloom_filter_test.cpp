// Tests Bloom filters against sizes, bits and sets that were computed by hand.
#include "core/coding/bloom_filter.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using Indices = std::vector<std::uint32_t>;

Indices PositivesOf(BloomFilter& filter, std::size_t n, std::size_t most, int threads = 1) {
  ThreadPool pool(threads);
  const auto positives = filter.Positives(n, most, pool);
  return {positives.begin(), positives.end()};
}

// The bits of an index by the header's definition, one by one.
std::vector<std::uint32_t> BitsOf(std::uint32_t index, BloomShape shape) {
  const auto hash = [&](std::uint64_t seed) {
    return (Mix64(seed + (std::uint64_t{index} + 1) * 0x9e3779b97f4a7c15u) >> 32) * shape.bits >>
           32;
  };
  const std::uint64_t a = hash(0x243f6a8885a308d3u);
  const std::uint64_t b = hash(0x13198a2e03707344u);
  std::vector<std::uint32_t> bits;
  for (std::uint64_t j = 0; j < shape.hashes; ++j) {
    bits.push_back(static_cast<std::uint32_t>((a + j * b + (j * j * j - j) / 6) % shape.bits));
  }
  return bits;
}

Indices Distinct(std::size_t count, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<bool> taken(n);
  for (std::size_t left = count; left > 0;) {
    const std::size_t index = random() % n;
    if (taken[index]) continue;
    taken[index] = true;
    --left;
  }
  Indices indices;
  for (std::size_t i = 0; i < n; ++i) {
    if (taken[i]) indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

// 14.4 bits an index at a density of 1 %, 19.2 at 0.1 %.
TEST(BloomFilter, HasThePublishedSizes) {
  EXPECT_EQ(BloomShapeOf(1000, 100'000, 0), (BloomShape{14378, 10}));
  EXPECT_EQ(BloomShapeOf(100, 100'000, 0), (BloomShape{1918, 14}));
  EXPECT_EQ(BloomShapeOf(10, 1000, 0), (BloomShape{144, 10}));
  EXPECT_EQ(BloomShapeOf(2, 2000, 0.25), (BloomShape{6, 2}));
  EXPECT_EQ(BloomShapeOf(3, 1001, 1.0 / 32), (BloomShape{22, 5}));
  EXPECT_EQ(BloomShapeOf(0, 1000, 0), (BloomShape{0, 0}));
  EXPECT_EQ(BloomShapeOf(7, 1000, 0.5), (BloomShape{11, 1}));
  EXPECT_DOUBLE_EQ(ExpectedPositives(1000, 100'000, 0), 1000 + 0.001 * 99'000);
  EXPECT_THROW(BloomShapeOf(std::size_t{1} << 30, std::size_t{1} << 32, 0), Error);
}

// A decoder takes at most 64 hashes.
TEST(BloomFilter, RatesBelow64HashesAreTheirs) {
  EXPECT_EQ(BloomShapeOf(7, 1000, 0x1p-64), (BloomShape{647, 64}));
  EXPECT_EQ(BloomShapeOf(7, 1000, 1e-20), (BloomShape{647, 64}));
  EXPECT_EQ(BloomShapeOf(7, 1000, 1e-300), (BloomShape{647, 64}));
  EXPECT_EQ(BloomShapeOf(7, 1000, 0x1p-63).hashes, 63u);
}

TEST(BloomFilter, SetsTheBitsThatTheHeaderSays) {
  EXPECT_EQ(BitsOf(1500, {144, 10}),
            (std::vector<std::uint32_t>{135, 89, 44, 1, 105, 69, 38, 13, 139, 129}));
  BloomFilter filter;
  filter.Build({22, 5}, Indices{5, 700, 1000});
  ASSERT_EQ(filter.words().size(), 1u);
  EXPECT_EQ(filter.words()[0], 0x1b18d8u);
  EXPECT_EQ(PositivesOf(filter, 1001, 1001), (Indices{5, 175, 232, 266, 465, 473, 481, 534, 700,
                                                      711, 760, 764, 853, 903, 938, 1000}));
  EXPECT_EQ(PositivesOf(filter, 1001, 3), (Indices{5, 175, 232}));
}

// Tests any number of bits and hashes, on every instruction set and with several threads.
TEST(BloomFilter, HasWhatAllBitsSay) {
  const std::size_t n = kSanitized ? 20'000 : 300'001;
  for (const BloomShape shape : {BloomShape{1, 1},
                                 {2, 3},
                                 {64, 1},
                                 {977, 2},
                                 {4096, 4},
                                 {30'001, 5},
                                 {40'000, 6},
                                 {50'021, 10},
                                 {65'536, 64}}) {
    const Indices put = Distinct(2000, n, shape.bits);
    std::vector<bool> set(shape.bits);
    for (const std::uint32_t index : put) {
      for (const std::uint32_t bit : BitsOf(index, shape)) set[bit] = true;
    }
    Indices expected;
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto bits = BitsOf(i, shape);
      if (std::ranges::all_of(bits, [&](std::uint32_t bit) { return set[bit]; })) {
        expected.push_back(i);
      }
    }
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      BloomFilter filter;
      filter.Build(shape, put);
      for (std::uint32_t bit = 0; bit < shape.bits; ++bit) {
        ASSERT_EQ(filter.words()[bit / 32] >> bit % 32 & 1, set[bit] ? 1u : 0u) << bit;
      }
      for (const int threads : {1, 3}) {
        ASSERT_EQ(PositivesOf(filter, n, n, threads), expected) << IsaName(isa);
        for (const std::size_t most : {std::size_t{0}, std::size_t{1}, expected.size() / 2}) {
          ASSERT_EQ(PositivesOf(filter, n, most, threads),
                    Indices(expected.begin(), expected.begin() + static_cast<long>(most)));
        }
      }
    }
  }
}

// Covers filters of several sizes. Filters of few bits have a few more false positives, since
// hashes coincide.
TEST(BloomFilter, HasFalsePositivesAtItsRate) {
  for (const auto& [count, n, rate] :
       {std::tuple{10'000, 1'000'000, 0.0}, {1000, 1'000'000, 0.0}, {5000, 500'000, 0.02}}) {
    const auto k = static_cast<std::size_t>(count);
    const auto all = static_cast<std::size_t>(n);
    const int filters = kSanitized ? 1 : 10;
    double found = 0;
    BloomFilter filter;
    for (int draw = 0; draw < filters; ++draw) {
      filter.Build(BloomShapeOf(k, all, rate), Distinct(k, all, 17 * draw + 1));
      found += static_cast<double>(PositivesOf(filter, all, all).size() - k);
    }
    const double expected = filters * (ExpectedPositives(k, all, rate) - count);
    // Fractions of a hash and a bit are rounded up; this can reduce the number, here by at most 8
    // %.
    EXPECT_LE(found, expected + 3 * std::sqrt(expected)) << count;
    EXPECT_GE(found, 0.9 * expected - 3 * std::sqrt(expected)) << count;
  }
}

TEST(BloomFilter, OfNothingHasNothing) {
  BloomFilter filter;
  filter.Build({}, {});
  EXPECT_TRUE(PositivesOf(filter, 5000, 5000).empty());
}

}  // namespace
}  // namespace sparfuse::testing

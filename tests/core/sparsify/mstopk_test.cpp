// Tests MSTopK against its algorithm, which counts all of x in every iteration.
#include <gtest/gtest.h>

#include <limits>

#include "core/base/random_stream.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::uint32_t kId = 7;

std::vector<std::uint32_t> MsTopKByDefinition(const std::vector<float>& x, std::size_t k,
                                              int iterations, std::uint64_t step) {
  std::vector<double> a(x.size());
  double sum = 0;
  double max = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    a[i] = std::abs(static_cast<double>(x[i]));
    sum += a[i];
    max = std::max(max, a[i]);
  }
  const double mean = sum / static_cast<double>(x.size());
  double low = 0;
  double high = 1;
  std::size_t fewer = 0;
  std::size_t more = x.size();
  double upper = std::numeric_limits<double>::infinity();
  double lower = 0;
  for (int i = 0; i < iterations; ++i) {
    const double r = (low + high) / 2;
    const double t = mean + r * (max - mean);
    const auto count = static_cast<std::size_t>(
        std::count_if(a.begin(), a.end(), [&](double v) { return v >= t; }));
    if (count <= k) {
      high = r;
      if (count > fewer) {
        fewer = count;
        upper = t;
      }
    } else {
      low = r;
      if (count < more) {
        more = count;
        lower = t;
      }
    }
  }
  std::vector<std::uint32_t> inside;
  std::vector<std::uint32_t> selected;
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    if (a[i] >= upper) {
      selected.push_back(i);
    } else if (a[i] >= lower) {
      inside.push_back(i);
    }
  }
  const std::size_t wanted = k - selected.size();
  if (wanted > 0) {
    const std::size_t start = RandomStream(kSeed, kId, step).Below(inside.size(), 0);
    for (std::size_t j = 0; j < wanted; ++j) {
      selected.push_back(inside[(start + j) % inside.size()]);
    }
  }
  std::sort(selected.begin(), selected.end());
  return selected;
}

TEST(MsTopK, FollowsTheAlgorithm) {
  for (const std::int64_t iterations : {1, 3, 8, 30}) {
    const auto mstopk = MakeSparsifier("mstopk", {{"iterations", iterations}}, kSeed);
    for (const std::size_t n : {2, 33, 1025, 30'011}) {
      for (const double density : {0.001, 0.02, 0.4}) {
        for (const char* data :
             {"gaussian", "laplace", "layers", "few-values", "spike", "sparse"}) {
          Selection selection(*mstopk, n, density, 1, true);
          for (std::uint64_t step = 0; step < 4; ++step) {
            const auto gradient = MakeData(data, n, static_cast<std::uint32_t>(step));
            std::vector<float> x = gradient;
            for (std::size_t i = 0; i < n; ++i) x[i] = gradient[i] + selection.residual()[i];
            ASSERT_EQ(
                selection.Run(gradient, step, kId).indices,
                MsTopKByDefinition(x, KeptCount(n, density), static_cast<int>(iterations), step))
                << data << " n=" << n << " density=" << density << " step=" << step
                << " iterations=" << iterations;
          }
        }
      }
    }
  }
}

// 0.1 (mean) to 1 (max): the first middle is 0.55 and four elements reach it, one more than k; the
// second one 0.775, and two do. So 1 and 0.8 are sent, and one of 0.6 and 0.7.
TEST(MsTopK, FillsUpFromInsideTheBracket) {
  std::vector<float> x(31, 0.0f);
  x[3] = 0.7f;
  x[10] = -1.0f;
  x[20] = 0.6f;
  x[30] = -0.8f;
  const auto mstopk = MakeSparsifier("mstopk", {{"iterations", std::int64_t{2}}}, kSeed);
  Selection selection(*mstopk, 31, 0.1, 1, false);
  int first = 0;
  for (std::uint64_t step = 0; step < 64; ++step) {
    const auto indices = selection.Run(x, step).indices;
    ASSERT_EQ(indices.size(), 3u);
    const bool lower = indices[0] == 3;
    EXPECT_EQ(indices, lower ? (std::vector<std::uint32_t>{3, 10, 30})
                             : (std::vector<std::uint32_t>{10, 20, 30}));
    first += lower;
  }
  EXPECT_GT(first, 16);
  EXPECT_LT(first, 48);
}

TEST(MsTopK, ThirtyIterationsAreAnExactTopKOfDistinctValues) {
  constexpr std::size_t kN = 300'007;
  const auto mstopk = MakeSparsifier("mstopk");
  Selection selection(*mstopk, kN, 0.01, 2, false);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto x = MakeData("ascending", kN, 0);
    EXPECT_EQ(selection.Run(x, step).indices, LargestByDefinition(x, 3000).indices);
  }
  EXPECT_EQ(selection.counters().fallbacks, 0u);
}

TEST(MsTopK, TooManyInTheBracketBecomeAnExactTopK) {
  constexpr std::size_t kN = 300'007;
  const auto mstopk = MakeSparsifier("mstopk");
  const std::vector<float> x(kN, 0.1f);
  Selection selection(*mstopk, kN, 0.01, 2, false);
  EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, 3000).indices);
  EXPECT_EQ(selection.counters().fallbacks, 1u);
}

// 30 + k elements of many magnitudes among zeros, which are too many to collect: the algorithm is
// followed where the bracket lies above them. Three halvings leave more in it than are sent.
TEST(MsTopK, FollowsTheAlgorithmAboveACrowd) {
  constexpr std::size_t kN = 300'007;
  const auto mstopk = MakeSparsifier("mstopk", {{"iterations", std::int64_t{3}}}, kSeed);
  std::vector<float> x(kN, 0.0f);
  for (std::size_t i = 0; i < 3030; ++i) x[i * 97] = 1.0f + 0.001f * static_cast<float>(i % 2000);
  Selection selection(*mstopk, kN, 0.01, 2, false);
  EXPECT_EQ(selection.Run(x, 1, kId).indices, MsTopKByDefinition(x, 3000, 3, 1));
  EXPECT_EQ(selection.counters().fallbacks, 0u);
}

}  // namespace
}  // namespace sparfuse::testing

// Tests moments, tails and counts by sums in double precision, on all instruction sets and pools.
#include "core/sparsify/scan/statistics.hpp"

#include <gtest/gtest.h>

#include "tests/support/errors.hpp"
#include "tests/support/statistics_oracle.hpp"

namespace sparfuse::testing {
namespace {

// All inputs of a selection on the host.
struct Bench {
  explicit Bench(int threads) : pool(threads) {}
  SelectContext context() { return {&pool, &workspace, &counters, {}}; }

  ThreadPool pool;
  Workspace workspace;
  SelectCounters counters;
  TensorInfo info{7, "conv1.weight", {}, 3};
};

Statistics Wanted() {
  Statistics wanted;
  wanted.tail_count = 3;
  wanted.tails[0].key = 0;
  wanted.tails[1].key = Key(0.25f);
  wanted.tails[2].key = Key(2.0f);
  wanted.tail_squares = true;
  wanted.logs = true;
  return wanted;
}

void ExpectClose(const Statistics& s, const Statistics& exact) {
  constexpr double kTolerance = 1e-6;  // single precision over sixteen elements of a lane
  EXPECT_EQ(s.n, exact.n);
  EXPECT_EQ(s.max_key, exact.max_key);
  EXPECT_EQ(s.log_count, exact.log_count);
  EXPECT_NEAR(s.sum, exact.sum, kTolerance * exact.sum_abs);
  EXPECT_NEAR(s.sum_abs, exact.sum_abs, kTolerance * exact.sum_abs);
  EXPECT_NEAR(s.sum_squares, exact.sum_squares, kTolerance * exact.sum_squares);
  // The product of mantissas has the error of the logarithm itself.
  EXPECT_NEAR(s.sum_log, exact.sum_log,
              kTolerance * (std::abs(exact.sum_log) + static_cast<double>(exact.log_count)));
  for (std::size_t t = 0; t < s.tail_count; ++t) {
    const TailSums& a = s.tails[t].sums;
    const TailSums& b = exact.tails[t].sums;
    EXPECT_EQ(a.count, b.count);
    EXPECT_NEAR(a.sum_abs, b.sum_abs, kTolerance * b.sum_abs);
    EXPECT_NEAR(a.sum_squares, b.sum_squares, kTolerance * b.sum_squares);
  }
}

void ExpectSame(const Statistics& s, const Statistics& t) {
  EXPECT_EQ(s.sum, t.sum);
  EXPECT_EQ(s.sum_abs, t.sum_abs);
  EXPECT_EQ(s.sum_squares, t.sum_squares);
  EXPECT_EQ(s.sum_log, t.sum_log);
  for (std::size_t i = 0; i < s.tail_count; ++i) {
    EXPECT_EQ(s.tails[i].sums.sum_abs, t.tails[i].sums.sum_abs);
    EXPECT_EQ(s.tails[i].sums.sum_squares, t.tails[i].sums.sum_squares);
  }
}

TEST(Statistics, AgreeWithDoublePrecisionAndWithEachOther) {
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {1, 15, 16, 17, 255, 257, 4097, 300'007}) {
      for (const float scale : {1.0f, 1e-30f, 1e30f}) {
        if (n > 10'000 && scale != 1) continue;  // no new path, slow
        const auto x = Scaled(MakeData(data, n, 5), scale);
        SCOPED_TRACE(data + " n=" + std::to_string(n) + " scale=" + std::to_string(scale));
        const Statistics exact = MeasureByDefinition(x, Wanted());
        std::vector<Statistics> all;
        for (const Isa isa : SupportedIsas()) {
          const ScopedIsa scope(isa);
          for (const int threads : {1, 3}) {
            Bench bench(threads);
            SelectInput input{x.data(), nullptr, n, false};
            all.push_back(Measure(bench.context(), input, bench.info, Wanted()));
            ExpectClose(all.back(), exact);
            ExpectSame(all.back(), all.front());
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

// 2^30 added to itself a few times is exact in single precision; the sum of 3e38 is not finite.
TEST(Statistics, SumsOfTheLargestFloatsStayFinite) {
  const std::vector<float> x(1000, 3e38f);
  Bench bench(1);
  SelectInput input{x.data(), nullptr, x.size(), false};
  const Statistics s = Measure(bench.context(), input, bench.info);
  EXPECT_NEAR(s.sum, 3e41, 3e35);
  EXPECT_NEAR(s.sum_squares, 9e79, 9e73);
  EXPECT_EQ(s.MaxAbs(), static_cast<double>(3e38f));
}

TEST(Statistics, AddThePendingResidualOnce) {
  const auto gradient = MakeData("gaussian", 5000, 1);
  auto residual = MakeData("laplace", 5000, 2);
  std::vector<float> x(5000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = gradient[i] + residual[i];
  Bench bench(1);
  SelectInput input{gradient.data(), residual.data(), x.size(), true};
  ExpectClose(Measure(bench.context(), input, bench.info, Wanted()),
              MeasureByDefinition(x, Wanted()));
  EXPECT_FALSE(input.pending);
  EXPECT_EQ(Bits(residual), Bits(x));
}

TEST(Statistics, NameTheTensorThatIsNotFinite) {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const float bad : {kNan, -kInfinity}) {
      auto x = MakeData("gaussian", 10'000, 1);
      x[7001] = bad;
      Bench bench(1);
      SelectInput input{x.data(), nullptr, x.size(), false};
      SCOPED_TRACE(::testing::Message() << bad);
      ExpectError(FailureKind::kNumeric, {"conv1.weight", "7001"},
                  [&] { Measure(bench.context(), input, bench.info); });
    }
  }
}

TEST(CountReaching, CountsAsDefined) {
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    for (const std::size_t n : {1, 13, 4097, 300'007}) {
      const auto x = MakeData("few-values", n, 3);
      const std::vector<std::uint32_t> keys = {0,        1,         Key(0.5f), Key(0.5f) + 1,
                                               Key(1.f), Key(1.5f), Key(3.f),  kInfinityKey};
      for (const std::size_t used : {std::size_t{1}, std::size_t{5}, keys.size()}) {
        std::vector<std::size_t> counts(used);
        Bench bench(2);
        const SelectInput input{x.data(), nullptr, n, false};
        CountReaching(bench.context(), input, {keys.data(), used}, counts);
        for (std::size_t j = 0; j < used; ++j) {
          EXPECT_EQ(counts[j], static_cast<std::size_t>(std::count_if(
                                   x.begin(), x.end(), [&](float v) { return Key(v) >= keys[j]; })))
              << "n=" << n << " key " << keys[j];
        }
      }
    }
  }
}

TEST(Keys, AreTheFirstThatReachAThreshold) {
  const float tenth = 0.1f;  // 0.100000001490116...
  EXPECT_EQ(KeyAtLeast(0.1), Key(tenth));
  EXPECT_EQ(KeyAbove(0.1), Key(tenth));
  EXPECT_EQ(KeyAtLeast(static_cast<double>(tenth)), Key(tenth));
  EXPECT_EQ(KeyAbove(static_cast<double>(tenth)), Key(tenth) + 1);
  EXPECT_EQ(KeyAtLeast(0.0), 0u);
  EXPECT_EQ(KeyAbove(0.0), 1u);  // the smallest denormal
  EXPECT_EQ(KeyAtLeast(-1.0), 0u);
  EXPECT_EQ(KeyAbove(-1.0), 0u);
  EXPECT_EQ(KeyAtLeast(1e-60), 1u);
  EXPECT_EQ(KeyAbove(1e-60), 1u);
  EXPECT_EQ(KeyAbove(1e39), kInfinityKey);
  EXPECT_EQ(KeyAtLeast(1e39), kInfinityKey);
  EXPECT_EQ(KeyAtLeast(static_cast<double>(std::numeric_limits<float>::max())), kInfinityKey - 1);
  EXPECT_EQ(KeyAbove(std::numeric_limits<double>::infinity()), kInfinityKey);
}

TEST(NormalQuantile, AgreesWithTables) {
  EXPECT_NEAR(TwoSidedNormalQuantile(0.05), 1.9599639845400545, 1e-13);
  EXPECT_NEAR(TwoSidedNormalQuantile(0.01), 2.5758293035489004, 1e-13);
  EXPECT_NEAR(TwoSidedNormalQuantile(0.001), 3.2905267314919255, 1e-13);
  EXPECT_NEAR(TwoSidedNormalQuantile(0.5), 0.6744897501960817, 1e-13);
  EXPECT_EQ(TwoSidedNormalQuantile(1), 0);
  for (const double density : {1e-300, 1e-15, 1e-9, 0.1, 0.3, 0.9, 0.999999}) {
    EXPECT_NEAR(std::erfc(TwoSidedNormalQuantile(density) / std::sqrt(2.0)) / density, 1, 1e-10);
  }
}

TEST(SampleVariance, IsUnbiasedAndNeverNegative) {
  EXPECT_DOUBLE_EQ(SampleVariance(3, 1 + 2 + 6, 1 + 4 + 36), 7);
  EXPECT_EQ(SampleVariance(2, 2, 2 - 1e-15), 0);
  EXPECT_TRUE(std::isnan(SampleVariance(1, 2, 4)));
}

class Taking : public ::testing::Test {
 protected:
  // The elements of {3, -1, 0, 2, -2, 1} that reach `key`, in a slot of `capacity`.
  std::vector<std::uint32_t> Take(std::uint32_t key, std::size_t capacity, std::size_t k) {
    Slot slot{{indices_, capacity, {}}, {values_, capacity, {}}, capacity, 0};
    SelectInput input{x_, nullptr, std::size(x_), false};
    reached_ = TakeReaching(bench_.context(), input, bench_.info, key, k, slot);
    for (std::size_t i = 0; i < slot.count; ++i) EXPECT_EQ(values_[i], x_[indices_[i]]);
    return {indices_, indices_ + slot.count};
  }

  const float x_[6] = {3, -1, 0, 2, -2, 1};
  std::uint32_t indices_[6];
  float values_[6];
  Bench bench_{1};
  std::size_t reached_ = 0;
};

TEST_F(Taking, SendsWhatReachesTheKey) {
  EXPECT_EQ(Take(Key(2.0f), 6, 1), (std::vector<std::uint32_t>{0, 3, 4}));
  EXPECT_EQ(reached_, 3u);
  EXPECT_EQ(Take(0, 6, 1), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(bench_.counters.fallbacks + bench_.counters.overflows, 0u);
}

TEST_F(Taking, NothingBecomesTheLargest) {
  EXPECT_EQ(Take(Key(3.5f), 6, 2), (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(reached_, 0u);
  EXPECT_EQ(bench_.counters.fallbacks, 1u);
}

TEST_F(Taking, TooManyBecomeTheLargest) {
  EXPECT_EQ(Take(Key(1.0f), 4, 3), (std::vector<std::uint32_t>{0, 3, 4}));
  EXPECT_EQ(reached_, 5u);
  EXPECT_EQ(bench_.counters.overflows, 1u);
}

}  // namespace
}  // namespace sparfuse::testing

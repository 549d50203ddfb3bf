// Compares measurements on a device with sums in double precision, element by element; also
// compares thresholds computed from them with the host's.
#include <gtest/gtest.h>

#include "core/device/emulated/emulated_launch.hpp"
#include "core/sparsify/gaussiank/gaussiank_kernels.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/statistics_kernels.hpp"
#include "core/sparsify/sidco/sidco_kernels.hpp"
#include "tests/support/devices/device_selection.hpp"
#include "tests/support/statistics_oracle.hpp"

namespace sparfuse {
namespace {

using testing::Bits;
using testing::Key;
using testing::MakeData;

constexpr Device kDevice{DeviceKind::kEmulated, 0};
constexpr Stream kAtOnce{kDevice, nullptr};

struct Keep {
  Statistics* to;
  void operator()(auto& block, const Statistics& statistics) const {
    if (block.thread() == 0) *to = statistics;
  }
};

}  // namespace
SPARFUSE_KERNEL_OF_A_TEST(gpu::Collect<gpu::Measure<false, Keep>>)
SPARFUSE_KERNEL_OF_A_TEST(gpu::Collect<gpu::Measure<true, Keep>>)
namespace {

gpu::TailKeys Tails() { return {3, {0, Key(0.25f), Key(2.0f)}}; }

// The residual is half of x, so that the sum is exact. Runs on the emulated device only, whose
// statistics go straight to the host.
template <bool kAll>
Statistics MeasureOnDevice(const std::vector<float>& x, bool feedback, std::size_t shift) {
  const std::size_t n = x.size();
  const Buffer<float> gradient(n + shift, kDevice);
  const Buffer<float> residual(n, kDevice);
  for (std::size_t i = 0; i < n; ++i) {
    gradient.data()[i + shift] = feedback ? x[i] / 2 : x[i];
    residual.data()[i] = x[i] / 2;
  }
  const Buffer<SlotReport> report(1, kDevice);
  DeviceWorkspace workspace(kDevice);
  const DeviceContext context{kAtOnce, &workspace, nullptr, nullptr};
  const DeviceInput input{gradient.data() + shift, feedback ? residual.data() : nullptr, n,
                          feedback};
  const DeviceSlot slot{nullptr, nullptr, 0, report.data()};
  const gpu::TailKeys tails = Tails();
  Statistics statistics;
  DeviceScan scan =
      PrepareScan(context, input, {7, "conv1.weight", {}, 3}, 1, slot, NothingCollected());
  CollectAndMeasureOnDevice<kAll>(context, scan, Keep{&statistics}, {true, true}, &tails);
  if (feedback) {
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(Bits(residual.data()[i]), Bits(x[i]));
  }
  EXPECT_EQ(scan.control->count, 0u);
  return statistics;
}

Statistics MeasureByDefinition(const std::vector<float>& x) {
  Statistics wanted;
  wanted.tail_count = Tails().count;
  for (std::size_t t = 0; t < wanted.tail_count; ++t) wanted.tails[t].key = Tails().keys[t];
  return testing::MeasureByDefinition(x, wanted);
}

void ExpectMomentsClose(const Statistics& s, const Statistics& exact) {
  constexpr double kTolerance = 1e-12;  // double precision, added in another order
  EXPECT_EQ(s.n, exact.n);
  EXPECT_EQ(s.max_key, exact.max_key);
  EXPECT_NEAR(s.sum, exact.sum, kTolerance * exact.sum_abs);
  EXPECT_NEAR(s.sum_abs, exact.sum_abs, kTolerance * exact.sum_abs);
  EXPECT_NEAR(s.sum_squares, exact.sum_squares, kTolerance * exact.sum_squares);
}

void ExpectClose(const Statistics& s, const Statistics& exact) {
  constexpr double kTolerance = 1e-12;
  ExpectMomentsClose(s, exact);
  EXPECT_EQ(s.log_count, exact.log_count);
  EXPECT_NEAR(s.sum_log, exact.sum_log,
              kTolerance * (std::abs(exact.sum_log) + static_cast<double>(exact.log_count)));
  ASSERT_EQ(s.tail_count, exact.tail_count);
  for (std::size_t t = 0; t < s.tail_count; ++t) {
    const TailSums& a = s.tails[t].sums;
    const TailSums& b = exact.tails[t].sums;
    EXPECT_EQ(s.tails[t].key, exact.tails[t].key);
    EXPECT_EQ(a.count, b.count);
    EXPECT_NEAR(a.sum_abs, b.sum_abs, kTolerance * b.sum_abs);
    EXPECT_NEAR(a.sum_squares, b.sum_squares, kTolerance * b.sum_squares);
  }
}

TEST(StatisticsOnDevice, AgreeWithDoublePrecision) {
  for (const std::string& data : testing::DataNames()) {
    for (const std::size_t n : {1, 255, 4097, 20'011}) {
      for (const float scale : {1.0f, 1e-30f, 1e30f}) {
        // No new path, and slow.
        if (n > 10'000 && (scale != 1 || data != "gaussian")) continue;
        if (scale != 1 && data != "gaussian" && data != "layers") continue;
        const auto x = testing::Scaled(MakeData(data, n, 5), scale);
        SCOPED_TRACE(data + " n=" + std::to_string(n) + " scale=" + std::to_string(scale));
        const Statistics exact = MeasureByDefinition(x);
        ExpectClose(MeasureOnDevice<true>(x, false, n % 4), exact);
        ExpectMomentsClose(MeasureOnDevice<false>(x, data != "denormal" && scale == 1, 0), exact);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(StatisticsOnDevice, AreTheSameInEveryRun) {
  const auto x = MakeData("laplace", 30'011, 5);
  const Statistics first = MeasureOnDevice<true>(x, false, 0);
  for (int i = 0; i < 3; ++i) {
    const Statistics again = MeasureOnDevice<true>(x, true, 0);
    EXPECT_EQ(again.sum, first.sum);
    EXPECT_EQ(again.sum_squares, first.sum_squares);
    EXPECT_EQ(again.sum_log, first.sum_log);
    EXPECT_EQ(again.tails[1].sums.sum_abs, first.tails[1].sums.sum_abs);
  }
}

TEST(StatisticsOnDevice, ThresholdsAreTheHosts) {
  for (const char* data : {"gaussian", "laplace", "layers", "sparse", "ascending"}) {
    SCOPED_TRACE(data);
    const auto x = MakeData(data, 20'011, 5);
    const Statistics device = MeasureOnDevice<true>(x, false, 0);
    ThreadPool pool(1);
    Workspace workspace;
    SelectCounters counters;
    SelectInput input{x.data(), nullptr, x.size(), false};
    Statistics wanted;
    wanted.tail_count = 1;
    wanted.tails[0].key = Key(0.25f);
    wanted.tail_squares = true;
    wanted.logs = true;
    const Statistics host =
        Measure({&pool, &workspace, &counters, {}}, input, {7, "conv1.weight", {}, 3}, wanted);
    const auto expect = [](double of_device, double of_host) {
      EXPECT_NEAR(of_device, of_host, 1e-6 * std::abs(of_host));
    };
    expect(GaussianThreshold(device, 2.5), GaussianThreshold(host, 2.5));
    for (const Fit fit : {Fit::kExponential, Fit::kPareto, Fit::kGamma}) {
      expect(FirstThreshold(fit, device, 0.01), FirstThreshold(fit, host, 0.01));
      expect(TailThreshold(fit, device.tails[1], 0.1), TailThreshold(fit, host.tails[0], 0.1));
    }
  }
}

}  // namespace
}  // namespace sparfuse

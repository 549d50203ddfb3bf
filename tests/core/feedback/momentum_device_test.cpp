// Tests that norms, clipping, momentum and returned elements on a device equal the host's.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/base/error.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "core/feedback/norm/norm.hpp"
#include "core/feedback/returned.hpp"
#include "tests/support/devices/device_arrays.hpp"
#include "tests/support/devices/gpu_graph.hpp"

namespace sparfuse::testing {
namespace {

class FeedbackDevice : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, FeedbackDevice, TheDevices(), DeviceName);

std::vector<float> Random(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 20) - 10);
  return x;
}

constexpr std::size_t kSizes[] = {0, 1, 5, 1023, 4096, 8191, 8192, 8193, 20'001};

TEST_P(FeedbackDevice, SquaresAddUpToTheHostsBits) {
  ThreadPool pool(2);
  for (const std::size_t n : kSizes) {
    for (const std::size_t offset : {0, 1, 4}) {
      const std::vector<float> x = Random(n, 3);
      const DeviceArray<float> on_device(stream(), x, offset);
      const DeviceArray<double> sum(stream(), 1);
      SumSquaresOnDevice(stream(), workspace(), on_device.read(), sum.data());
      const double expected = SumSquares(x, pool);
      EXPECT_EQ(sum.ToHost()[0], expected) << n;
      long double exact = 0;
      for (const float v : x) exact += static_cast<long double>(v) * static_cast<long double>(v);
      EXPECT_NEAR(expected, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
    }
  }
}

// Tiles beyond 256 share the partial sums that are added last.
TEST(SumSquares, DoesNotDependOnThePool) {
  const std::vector<float> x = Random(300 * 8192 + 17, 4);
  ThreadPool one(1);
  ThreadPool three(3);
  EXPECT_EQ(SumSquares(x, one), SumSquares(x, three));
}

TEST_P(FeedbackDevice, ClipsAsTheHostDoes) {
  ThreadPool pool(1);
  const DeviceArray<float> factor(stream(), 1);
  for (const std::size_t n : kSizes) {
    const std::vector<float> x = Random(n, 5);
    const DeviceArray<float> on_device(stream(), x, 2);
    for (const double limit : {1e-3, 2.5, 1e9}) {
      ClipFactorOnDevice(stream(), workspace(), on_device.read(), limit, factor.data());
      EXPECT_EQ(factor.ToHost()[0], ClipFactor(x, limit, pool)) << n << " " << limit;
    }
  }
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const DeviceArray<float> on_device(stream(), std::vector<float>{1, bad, 100});
    ClipFactorOnDevice(stream(), workspace(), on_device.read(), 1e-3, factor.data());
    EXPECT_EQ(factor.ToHost()[0], 1.0f);
  }
  EXPECT_THROW(ClipFactorOnDevice(stream(), workspace(), {}, 0, factor.data()), Error);
}

TEST_P(FeedbackDevice, AdvancesVelocitiesAsTheHostDoes) {
  ThreadPool pool(1);
  for (const bool nesterov : {false, true}) {
    const MomentumOptions options{0.9, nesterov, true};
    for (const std::size_t n : kSizes) {
      for (const std::size_t offset : {0, 1}) {
        const std::vector<float> gradient = Random(n, 6);
        std::vector<float> velocity = Random(n, 7);
        std::vector<float> growth(n);
        const DeviceArray<float> on_device(stream(), gradient, offset);
        const DeviceArray<float> u(stream(), velocity, 1);
        const DeviceArray<float> grown(stream(), n, 1);
        const DeviceArray<float> factor(stream(), std::vector<float>{0.37f});
        for (const float scale : {0.37f, 1.0f}) {
          const auto expected = AdvanceVelocity(options, gradient, scale, velocity, growth, pool);
          const auto result = AdvanceVelocityOnDevice(
              stream(), options, on_device.read(), scale == 1.0f ? nullptr : factor.data(),
              u.view(), nesterov ? grown.view() : DeviceSpan<float>{});
          EXPECT_EQ(result.data, nesterov ? grown.data() : u.data());
          EXPECT_EQ(result.size, n);
          EXPECT_EQ(u.ToHost(), velocity);
          if (nesterov) {
            EXPECT_EQ(grown.ToHost(), std::vector(expected.begin(), expected.end()));
          }
        }
      }
    }
  }
}

// The stream's latest factor is used, also if a graph replays both operations.
TEST_P(FeedbackDevice, ClippingAndAdvancingAreCaptured) {
  const MomentumOptions options{0.5, false, true};
  const DeviceArray<float> gradient(stream(), std::vector<float>{3, 4});
  const DeviceArray<float> velocity(stream(), 2);
  const DeviceArray<float> factor(stream(), 1);
  const auto step = [&] {
    ClipFactorOnDevice(stream(), workspace(), gradient.read(), 1.0, factor.data());
    AdvanceVelocityOnDevice(stream(), options, gradient.read(), factor.data(), velocity.view(), {});
  };
  step();
  gpu::Synchronize(stream());
  const GpuGraph graph(stream(), step);
  graph.Launch(stream());
  const std::vector<float> found = velocity.ToHost();
  EXPECT_NEAR(found[0], 0.9, 1e-5);
  EXPECT_NEAR(found[1], 1.2, 1e-5);
}

TEST_P(FeedbackDevice, MasksWhatTheReportCounts) {
  constexpr std::size_t kN = 9000;
  std::vector<std::uint32_t> indices(kN, 1);  // behind the count: must not be read
  for (std::uint32_t i = 0; i < 4000; ++i) indices[i] = 2 * i;
  const DeviceArray<std::uint32_t> on_device(stream(), indices);
  SlotReport counted;
  counted.count = 4000;
  const DeviceArray<SlotReport> report(stream(), std::vector{counted});
  const DeviceSlot slot{on_device.data(), nullptr, kN, report.data()};
  for (const bool masking : {true, false}) {
    const DeviceArray<float> velocity(stream(), std::vector<float>(kN, 1.0f));
    MaskVelocityOnDevice(stream(), {0.9, false, masking}, slot, velocity.view());
    const std::vector<float> found = velocity.ToHost();
    for (std::size_t i = 0; i < kN; ++i) {
      ASSERT_EQ(found[i], masking && i % 2 == 0 && i < 8000 ? 0.0f : 1.0f) << i;
    }
  }
}

TEST_P(FeedbackDevice, ResidualsHaveTheHostsNorm) {
  ResidualStore host(20'001);
  ResidualStore on_device(20'001, stream().device);
  EXPECT_EQ(on_device.Norm(), 0.0);
  for (const char* name : {"local", "global"}) {
    const std::vector<float> x = Random(20'001, name[0]);
    std::copy(x.begin(), x.end(), host.Get(name, {0, x.size()}).data);
    gpu::CopyAsync(stream(), on_device.Get(name, {0, x.size()}).data, x.data(),
                   x.size() * sizeof(float));
    gpu::Synchronize(stream());
  }
  EXPECT_GT(host.Norm(), 0);
  EXPECT_EQ(on_device.Norm(), host.Norm());
}

TEST_P(FeedbackDevice, TakesBackWhatWasReturned) {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 5000; i += 3) {
    indices.push_back(i);
    values.push_back(static_cast<float>(i) * 0.1f);
  }
  const DeviceArray<std::uint32_t> at(stream(), indices, 1);
  const DeviceArray<float> of(stream(), values, 1);
  const DevicePayload payload{at.data(), of.data(), indices.size(), nullptr};
  const DeviceArray<std::uint32_t> taken(stream(), 1);
  const DeviceArray<std::uint64_t> fault(stream(), 1);
  std::uint32_t all = 0;
  for (const Range part : {Range{0, 1000}, Range{1000, 1001}, Range{1001, 6000}}) {
    std::vector<float> expected = Random(part.size(), 9);
    const DeviceArray<float> residual(stream(), expected);
    all += static_cast<std::uint32_t>(AddReturned({indices, values}, part, expected));
    AddReturnedOnDevice(stream(), payload, part, residual.view(), taken.data(), fault.data());
    EXPECT_EQ(residual.ToHost(), expected);
    EXPECT_EQ(taken.ToHost()[0], all);
  }
  EXPECT_EQ(all, indices.size());
  AddReturnedOnDevice(stream(), payload, {0, 6000}, {}, taken.data(), fault.data());
  EXPECT_EQ(taken.ToHost()[0], 2 * all);
  EXPECT_EQ(fault.ToHost()[0], 0u);

  const DeviceArray<std::uint32_t> wrong(stream(), std::vector<std::uint32_t>{3, 2});
  AddReturnedOnDevice(stream(), {wrong.data(), of.data(), 2, nullptr}, {0, 10}, {}, taken.data(),
                      fault.data());
  EXPECT_THROW(CheckPayloadFault(fault.ToHost()[0]), Error);
}

}  // namespace
}  // namespace sparfuse::testing

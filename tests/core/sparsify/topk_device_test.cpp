// Tests that exact top-k selects the host's elements on a device, bit for bit.
#include <gtest/gtest.h>

#include "tests/support/devices/device_selection.hpp"
#include "tests/support/devices/gpu_graph.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::testing {
namespace {

class TopKOnDevice : public OnDevices {};
SPARFUSE_ON_DEVICES(TopKOnDevice);

// Compares some steps, with their own residual, with the definition.
void ExpectSteps(Device device, const std::string& data, std::size_t n, double density,
                 bool feedback, std::uint64_t steps, std::size_t gradient_shift = 0,
                 std::size_t residual_shift = 0) {
  SCOPED_TRACE(data + " n=" + std::to_string(n) + " density=" + std::to_string(density) +
               (feedback ? " feedback" : ""));
  const std::size_t k = KeptCount(n, density);
  DeviceSelection selection(MakeSparsifier("topk"), device, n, density, feedback, 0, gradient_shift,
                            residual_shift);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto gradient = MakeData(data, n, step);
    const std::vector<float> x = selection.WithResidual(gradient);
    const Selected expected = LargestByDefinition(x, k);
    ASSERT_TRUE(Same(selection.Run(gradient, step), expected)) << "step " << step;
    if (!feedback) continue;
    ASSERT_EQ(Bits(selection.Residual()), Bits(Unsent(x, expected))) << "step " << step;
  }
}

TEST_P(TopKOnDevice, SmallTensorsOfEveryKind) {
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {1u, 2u, 31u, 33u, 1023u, 1025u}) {
      ExpectSteps(device(), data, n, n < 1000 ? 0.3 : 0.05, n != 1023, 1);
    }
    ExpectSteps(device(), data, 4096, 0.001, true, 2);
    ExpectSteps(device(), data, 5000, 0.7, true, 1);
  }
  ExpectSteps(device(), "gaussian", 1025, 1.0, true, 2);
  ExpectSteps(device(), "gaussian", 16'384, 0.01, true, 2);
}

TEST_P(TopKOnDevice, LargerTensorsOfEveryKind) {
  for (const std::string& data : DataNames()) {
    ExpectSteps(device(), data, 20'011, 0.01, true, 2);
  }
  // Most elements are equal, more than candidates fit.
  ExpectSteps(device(), "equal", 70'001, 0.001, true, 1);
  ExpectSteps(device(), "spike", 70'001, 0.001, false, 1);
  ExpectSteps(device(), "sparse", 70'001, 0.02, true, 1);
  ExpectSteps(device(), "gaussian", 70'001, 0.001, false, 1);
  ExpectSteps(device(), "clustered", 40'003, 0.2, true, 1);
  ExpectSteps(device(), "gaussian", 20'011, 1.0, true, 2);
  ExpectSteps(device(), "laplace", 16'385, 0.99, true, 1);
}

TEST_P(TopKOnDevice, AnyAlignment) {
  for (const std::size_t gradient : {0u, 3u}) {
    for (const std::size_t residual : {0u, 2u, 3u}) {
      ExpectSteps(device(), "gaussian", 20'480, 0.01, true, 1, gradient, residual);
    }
    ExpectSteps(device(), "gaussian", 20'479, 0.01, false, 1, gradient);
  }
}

TEST_P(TopKOnDevice, WarmStartChangesTheTimeAndNeverTheResult) {
  constexpr std::size_t kN = 20'011;
  DeviceSelection warm(MakeSparsifier("topk"), device(), kN, 0.01, false);
  // The scale creeps, halves (bound too high), and grows a hundredfold (bound far too low).
  ExpectWarmTopKIsExact(warm, kN, {1.0f, 1.01f, 1.0f, 0.99f, 0.3f, 50.0f, 1e-30f, 1e30f}, 4);
}

TEST_P(TopKOnDevice, WarmCandidatesAreFewerThanSampledOnes) {
  constexpr std::size_t kN = 60'000;
  DeviceSelection warm(MakeSparsifier("topk"), device(), kN, 0.01, false);
  const auto gradient = MakeData("gaussian", kN, 1);
  warm.Run(gradient, 0);
  const std::uint64_t cold = warm.report().candidates;
  warm.Run(gradient, 1);
  warm.Run(gradient, 2);
  EXPECT_LT(warm.report().candidates, cold);
  EXPECT_LT(warm.report().candidates, 1.3 * kN / 100);
  EXPECT_EQ(warm.counters().fallbacks, 0u);
}

TEST_P(TopKOnDevice, ReportsTheFirstElementThatIsNotFinite) {
  const auto topk = MakeSparsifier("topk");
  for (const std::size_t n : {5u, 5000u, 20'000u}) {
    for (const double density : {0.2, 1.0}) {
      for (const float bad : {kNan, -kInfinity}) {
        auto gradient = MakeData("gaussian", n, 3);
        gradient[n - 2] = bad;
        gradient[n - 1] = bad;
        DeviceSelection selection(*topk, device(), n, density, true);
        ExpectError(FailureKind::kNumeric, {"conv1.weight", "element " + std::to_string(n - 2)},
                    [&] { selection.Run(gradient, 41); });
      }
    }
  }
  const std::vector<float> nans(70'000, kNan);
  DeviceSelection selection(*topk, device(), nans.size(), 0.001, false);
  EXPECT_THROW(selection.Run(nans, 0), Error);
}

TEST_P(TopKOnDevice, NoticesASumThatOverflows) {
  DeviceSelection selection(MakeSparsifier("topk"), device(), 4, 0.25, true);
  selection.SetResidual({0, 3e38f, 0, 0});
  EXPECT_THROW(selection.Run({1, 3e38f, 1, 1}, 0), Error);
}

TEST_P(TopKOnDevice, SelectsNothingWhereItIsNotWanted) {
  const auto topk = MakeSparsifier("topk");
  for (const std::size_t n : {500u, 70'000u}) {
    for (const double density : {0.001, 1.0}) {
      DeviceSelection selection(*topk, device(), n, density, true);
      const std::vector<float> equal(n, 1.0f);  // for 70,000, this needs the exact passes
      selection.Run(equal, 0);
      const auto residual = selection.Residual();
      selection.SetOnlyIf(0);
      EXPECT_TRUE(selection.Run(equal, 1).indices.empty());
      EXPECT_EQ(selection.report().fallbacks, 0u);
      EXPECT_EQ(Bits(selection.Residual()), Bits(residual));
    }
  }
}

TEST_P(TopKOnDevice, FillsASlotThatHoldsNoMore) {
  const auto topk = MakeSparsifier("topk");
  for (const std::size_t n : {3000u, 20'000u}) {
    DeviceSelection selection(*topk, device(), n, 0.01, false, n / 100);
    const auto x = MakeData("few-values", n, 1);
    EXPECT_EQ(selection.Run(x, 0).indices, LargestByDefinition(x, n / 100).indices);
  }
  DeviceSelection selection(*topk, device(), 3000, 0.01, false, 29);
  EXPECT_THROW(selection.Run(MakeData("gaussian", 3000, 1), 0), Error);
}

TEST_P(TopKOnDevice, MayBeRecordedAsAGraph) {
  constexpr std::size_t kN = 20'011;
  constexpr std::size_t kK = kN / 100;
  DeviceSelection recorded(MakeSparsifier("topk"), device(), kN, 0.01, false, kK);
  recorded.Run(std::vector<float>(kN, 0.0f), 0);  // allocates
  const GpuGraph graph(recorded.stream(), [&] { recorded.Launch(0); });
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto x = MakeData(step < 3 ? "gaussian" : "equal", kN, step);
    recorded.Give(x);
    graph.Launch(recorded.stream());
    EXPECT_EQ(recorded.Take(0).indices, LargestByDefinition(x, kK).indices);
  }
}

}  // namespace
}  // namespace sparfuse::testing

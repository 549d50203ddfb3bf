// Exact top-k on a device selects what it selects on the host, bit for bit.
#include <gtest/gtest.h>

#include <limits>

#include "tests/device_selection.hpp"

namespace sparfuse {
namespace {

using testing::Bits;
using testing::DeviceSelection;
using testing::LargestByDefinition;
using testing::MakeData;
using testing::MakeSparsifier;
using testing::Selected;

class TopKOnDevice : public testing::OnDevices {};
SPARFUSE_ON_DEVICES(TopKOnDevice);

// Some steps with a residual of its own, beside the definition.
void ExpectSteps(Device device, const std::string& data, std::size_t n, double density,
                 bool feedback, int steps, std::size_t gradient_shift = 0,
                 std::size_t residual_shift = 0) {
  SCOPED_TRACE(data + " n=" + std::to_string(n) + " density=" + std::to_string(density) +
               (feedback ? " feedback" : ""));
  const auto topk = MakeSparsifier("topk");
  const std::size_t k = KeptCount(n, density);
  DeviceSelection selection(*topk, device, n, density, feedback, 0, gradient_shift, residual_shift);
  std::vector<float> residual(n, 0.0f);
  for (int step = 0; step < steps; ++step) {
    const auto gradient = MakeData(data, n, static_cast<std::uint32_t>(step));
    std::vector<float> x = gradient;
    if (feedback) {
      for (std::size_t i = 0; i < n; ++i) x[i] = gradient[i] + residual[i];
    }
    const Selected selected = selection.Run(gradient, static_cast<std::uint64_t>(step));
    const Selected expected = LargestByDefinition(x, k);
    ASSERT_EQ(selected.indices, expected.indices) << "step " << step;
    ASSERT_EQ(Bits(selected.values), Bits(expected.values)) << "step " << step;
    if (!feedback) continue;
    residual = x;
    for (const std::uint32_t i : expected.indices) residual[i] = 0;
    ASSERT_EQ(Bits(selection.Residual()), Bits(residual)) << "step " << step;
  }
}

TEST_P(TopKOnDevice, SmallTensorsOfEveryKind) {
  for (const std::string& data : testing::DataNames()) {
    for (const std::size_t n : {1u, 2u, 31u, 33u, 1023u, 1025u, 5000u}) {
      for (const double density : {0.001, 0.05, 0.7, 1.0}) {
        ExpectSteps(device(), data, n, density, n != 1023, 2);
      }
    }
  }
}

TEST_P(TopKOnDevice, LargerTensorsOfEveryKind) {
  for (const std::string& data : testing::DataNames()) {
    ExpectSteps(device(), data, 20'011, 0.01, true, 3);
    ExpectSteps(device(), data, 70'001, 0.001, false, 1);
    ExpectSteps(device(), data, 40'003, 0.2, true, 1);
  }
  ExpectSteps(device(), "gaussian", 20'011, 1.0, true, 2);
}

TEST_P(TopKOnDevice, AnyAlignment) {
  for (const std::size_t gradient : {0u, 1u, 3u}) {
    for (const std::size_t residual : {0u, 2u, 3u}) {
      ExpectSteps(device(), "gaussian", 20'480, 0.01, true, 1, gradient, residual);
    }
    ExpectSteps(device(), "gaussian", 20'479, 0.01, false, 1, gradient);
  }
}

}  // namespace
}  // namespace sparfuse

// Tests that sparsifiers that estimate a threshold select the host's elements on a device. Elements
// at a threshold that is computed from sums may differ.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/sparsify/sidco/sidco_kernels.hpp"
#include "tests/support/devices/device_selection.hpp"

namespace sparfuse::testing {
namespace {

// Elements that differ are within 1e-5 of the smallest magnitude that the host sends.
void ExpectSameMask(const std::vector<float>& x, const Selected& device, const Selected& host) {
  const float boundary = SmallestMagnitude(host.values);
  std::vector<std::uint32_t> differing;
  std::set_symmetric_difference(device.indices.begin(), device.indices.end(), host.indices.begin(),
                                host.indices.end(), std::back_inserter(differing));
  for (const std::uint32_t i : differing) {
    ASSERT_NEAR(std::abs(x[i]), boundary, 1e-5f * boundary)
        << "element " << i << ", " << device.indices.size() << " sent, on the host "
        << host.indices.size();
  }
}

struct Shape {
  std::size_t n;
  double density;
  bool feedback;
  std::uint64_t steps = 3;
};
constexpr Shape kSmall[] = {{33, 0.1, true, 2}, {1025, 0.01, true, 2}};
constexpr Shape kOthers[] = {{1, 0.5, true, 1},         {2, 0.5, false, 1},
                             {5000, 0.3, false, 1},     {20'011, 0.01, true, 3},
                             {20'480, 0.001, false, 1}, {3000, 1.0, true, 1}};

// Steps on a device and on the host, each from the same residual.
void ExpectAsOnHost(Device device, const std::string& name, const Options& options,
                    const std::string& data, const Shape& shape) {
  SCOPED_TRACE(name + " " + data + " n=" + std::to_string(shape.n) +
               " density=" + std::to_string(shape.density));
  const auto sparsifier = MakeSparsifier(name, options);
  ASSERT_TRUE(sparsifier->SelectsOnDevice());
  Selection host(*sparsifier, shape.n, shape.density, 1, shape.feedback);
  DeviceSelection selection(*sparsifier, device, shape.n, shape.density, shape.feedback);
  for (std::uint64_t step = 0; step < shape.steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const auto gradient = MakeData(data, shape.n, step);
    const std::vector<float> x = host.WithResidual(gradient);
    if (shape.feedback) selection.SetResidual(host.residual());
    const Selected expected = host.Run(gradient, step);
    const Selected selected = selection.Run(gradient, step);
    ExpectSameMask(x, selected, expected);
    EXPECT_TRUE(std::ranges::is_sorted(selected.indices, std::ranges::less_equal()));
    ExpectNothingLost(x, selected, shape.feedback ? selection.Residual() : Unsent(x, selected));
    if (::testing::Test::HasFailure()) return;
  }
}

// Large shapes run once, since an emulated device is slow.
void ExpectAsOnHostForAll(Device device, const std::string& name, const Options& options = {}) {
  for (const std::string& data : DataNames()) {
    for (const Shape& shape : kSmall) ExpectAsOnHost(device, name, options, data, shape);
  }
  for (const Shape& shape : kOthers) ExpectAsOnHost(device, name, options, "gaussian", shape);
  ExpectAsOnHost(device, name, options, "sparse", {20'011, 0.05, false, 1});
}

class ThresholdsOnDevice : public OnDevices {};
SPARFUSE_ON_DEVICES(ThresholdsOnDevice);

TEST_P(ThresholdsOnDevice, GaussianK) { ExpectAsOnHostForAll(device(), "gaussiank"); }

TEST_P(ThresholdsOnDevice, GaussianKPaper) { ExpectAsOnHostForAll(device(), "gaussiank@paper"); }

TEST_P(ThresholdsOnDevice, Threshold) {
  ExpectAsOnHostForAll(device(), "threshold", {{"tau", 0.3}});
  for (const double tau : {0.0, 2.5}) {
    ExpectAsOnHost(device(), "threshold", {{"tau", tau}}, "gaussian", {5000, 0.01, true, 2});
  }
}

TEST_P(ThresholdsOnDevice, RedSync) { ExpectAsOnHostForAll(device(), "redsync"); }

TEST_P(ThresholdsOnDevice, MsTopK) {
  ExpectAsOnHostForAll(device(), "mstopk");
  for (const std::int64_t iterations : {1, 4}) {
    const Options options = {{"iterations", iterations}};
    for (const Shape& shape : {Shape{5000, 0.3, true, 2}, Shape{20'011, 0.01, false, 1}}) {
      ExpectAsOnHost(device(), "mstopk", options, "gaussian", shape);
      ExpectAsOnHost(device(), "mstopk", options, "few-values", shape);
    }
  }
}

TEST_P(ThresholdsOnDevice, Sidco) {
  ExpectAsOnHostForAll(device(), "sidco");
  for (const char* fit : {"exponential", "pareto", "gamma"}) {
    const Options options = {{"fit", std::string(fit)}, {"stages", std::int64_t{3}}};
    for (const char* data : {"gaussian", "layers", "sparse", "equal", "zeros"}) {
      ExpectAsOnHost(device(), "sidco", options, data, {3000, 0.01, true, 2});
    }
  }
  // Stages adapt after five steps, and again after ten.
  ExpectAsOnHost(device(), "sidco", {}, "gaussian", {3000, 0.01, false, 12});
}

TEST_P(ThresholdsOnDevice, SidcoPaper) {
  for (const char* fit : {"exponential", "pareto", "gamma"}) {
    for (const char* data : {"gaussian", "laplace", "sparse"}) {
      const Options options = {{"fit", std::string(fit)}, {"stages", std::int64_t{2}}};
      ExpectAsOnHost(device(), "sidco@paper", options, data, {3000, 0.01, true, 2});
    }
  }
}

// The estimate is so close to k that it is not corrected, and so dense that an error of 1e-4 would
// show.
TEST_P(ThresholdsOnDevice, SendsWhatTheEstimateSelects) {
  struct Case {
    const char* name;
    Options options;
    const char* data;
    double density;
  };
  const Case cases[] = {{"gaussiank", {}, "gaussian", 0.3},
                        {"sidco", {}, "laplace", 0.3},
                        {"sidco", {{"stages", std::int64_t{2}}}, "laplace", 0.15}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    constexpr std::size_t kN = 60'013;
    const auto sparsifier = MakeSparsifier(c.name, c.options);
    Selection host(*sparsifier, kN, c.density, 1, false);
    DeviceSelection selection(*sparsifier, device(), kN, c.density, false);
    const auto x = MakeData(c.data, kN, 3);
    const Selected expected = host.Run(x, 0);
    const Selected selected = selection.Run(x, 0);
    EXPECT_NE(expected.indices.size(), KeptCount(kN, c.density));
    ExpectSameMask(x, selected, expected);
    EXPECT_EQ(selection.counters().fallbacks, 0u);
  }
}

// The last step's bound, which too few elements reach, costs only time.
TEST_P(ThresholdsOnDevice, AWarmStartThatFailsChangesNothing) {
  for (const char* name : {"gaussiank", "sidco"}) {
    SCOPED_TRACE(name);
    constexpr std::size_t kN = 20'011;
    const auto sparsifier = MakeSparsifier(name);
    Selection host(*sparsifier, kN, 0.3, 1, false);
    DeviceSelection selection(*sparsifier, device(), kN, 0.3, false);
    std::uint64_t fallbacks = 0;
    std::uint64_t step = 0;
    for (const float factor : {1.0f, 1.0f, 1.0f, 0.5f, 0.5f, 2.0f}) {
      const auto x = Scaled(MakeData(name[0] == 'g' ? "gaussian" : "laplace", kN, 3), factor);
      const Selected expected = host.Run(x, step);
      EXPECT_NE(expected.indices.size(), KeptCount(kN, 0.3));
      ExpectSameMask(x, selection.Run(x, step), expected);
      if (step++ == 3) fallbacks = selection.counters().fallbacks;
    }
    EXPECT_EQ(fallbacks, 1u);
    EXPECT_EQ(selection.counters().fallbacks, 1u);
  }
}

// Boundaries between stages come from a sample.
TEST_P(ThresholdsOnDevice, SidcoOfALargerTensor) {
  const Options options = {{"stages", std::int64_t{3}}};
  ExpectAsOnHost(device(), "sidco", options, "gaussian", {kFitSampledFrom + 1234, 0.01, true, 1});
}

const char* const kNames[] = {"gaussiank", "gaussiank@paper", "sidco",    "sidco@paper",
                              "redsync",   "mstopk",          "threshold"};

TEST_P(ThresholdsOnDevice, WhatIsNotFiniteIsReported) {
  for (const char* name : kNames) {
    const auto sparsifier = MakeSparsifier(name);
    for (const float bad : {kInfinity, -kNan}) {
      DeviceSelection selection(*sparsifier, device(), 5000, 0.01, true);
      auto gradient = MakeData("gaussian", 5000, 1);
      gradient[4999] = bad;
      gradient[4321] = bad;
      EXPECT_THROW(selection.Run(gradient, 0), Error) << name;
      EXPECT_EQ(NotFiniteCode(selection.report().not_finite), 4321u) << name;
    }
  }
}

TEST_P(ThresholdsOnDevice, NothingChangesWhereTheSelectionIsNotWanted) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const auto sparsifier = MakeSparsifier(name);
    const auto first = MakeData("gaussian", 3000, 1);
    const auto second = MakeData("laplace", 3000, 2);
    DeviceSelection selection(*sparsifier, device(), 3000, 0.01, true);
    DeviceSelection other(*sparsifier, device(), 3000, 0.01, true);
    selection.Run(first, 0);
    other.Run(first, 0);
    const auto residual = selection.Residual();
    selection.SetOnlyIf(0);
    EXPECT_TRUE(selection.Run(MakeData("ascending", 3000, 1), 1).indices.empty());
    EXPECT_EQ(selection.report().fallbacks, 0u);
    EXPECT_EQ(Bits(selection.Residual()), Bits(residual));
    // The next step ignores that step: nothing of it is remembered.
    selection.SetOnlyIf(1);
    EXPECT_EQ(selection.Run(second, 2).indices, other.Run(second, 2).indices);
    EXPECT_EQ(Bits(selection.Residual()), Bits(other.Residual()));
  }
}

TEST_P(ThresholdsOnDevice, ASmallSlotTakesTheLargest) {
  constexpr std::size_t kN = 5000;
  const std::size_t k = KeptCount(kN, 0.01);
  const auto x = MakeData("laplace", kN, 1);
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const auto sparsifier = MakeSparsifier(name);
    DeviceSelection selection(*sparsifier, device(), kN, 0.01, false, k);
    const Selected selected = selection.Run(x, 0);
    EXPECT_LE(selected.indices.size(), k);
    if (std::string(name) == "threshold") {
      EXPECT_EQ(selected.indices, LargestByDefinition(x, k).indices);
      EXPECT_EQ(selection.counters().overflows, 1u);
    }
    EXPECT_THROW(DeviceSelection(*sparsifier, device(), kN, 0.01, false, k - 1).Run(x, 0), Error);
  }
}

TEST_P(ThresholdsOnDevice, EqualRunsSelectEqually) {
  for (const char* name : {"gaussiank", "sidco", "mstopk"}) {
    std::vector<std::vector<std::uint32_t>> runs[2];
    for (auto& run : runs) {
      DeviceSelection selection(MakeSparsifier(name), device(), 20'011, 0.01, true);
      for (std::uint64_t step = 0; step < 3; ++step) {
        run.push_back(selection.Run(MakeData("laplace", 20'011, step), step).indices);
        run.push_back(Bits(selection.Residual()));
      }
    }
    EXPECT_EQ(runs[0], runs[1]) << name;
  }
}

// Counters distinguish a corrected estimate from one that is no number or missing.
TEST_P(ThresholdsOnDevice, OnlyWhatFailsIsCounted) {
  DeviceSelection corrected(MakeSparsifier("gaussiank"), device(), 5000, 0.01, false);
  EXPECT_EQ(corrected.Run(MakeData("laplace", 5000, 1), 0).indices.size(), 50u);
  EXPECT_EQ(corrected.counters().fallbacks + corrected.counters().overflows, 0u);
  DeviceSelection none(MakeSparsifier("threshold", {{"tau", 1e6}}), device(), 5000, 0.01, false);
  EXPECT_EQ(none.Run(MakeData("laplace", 5000, 1), 0).indices.size(), 50u);
  EXPECT_EQ(none.counters().fallbacks, 1u);
}

}  // namespace
}  // namespace sparfuse::testing

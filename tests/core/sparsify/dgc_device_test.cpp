// Tests that DGC selects on a device as on the host, bit for bit: sample, threshold, corrections.
#include <gtest/gtest.h>

#include "tests/support/devices/device_selection.hpp"

namespace sparfuse::testing {
namespace {

class DgcOnDevice : public OnDevices {};
SPARFUSE_ON_DEVICES(DgcOnDevice);

void ExpectSteps(Device device, const Options& options, const std::string& data, std::size_t n,
                 double density, bool feedback, std::uint64_t steps, float last_scale = 1) {
  SCOPED_TRACE(data + " n=" + std::to_string(n) + " density=" + std::to_string(density));
  const auto dgc = MakeSparsifier("dgc", options);
  Selection host(*dgc, n, density, 1, feedback);
  DeviceSelection on_device(*dgc, device, n, density, feedback);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const float scale = step == steps - 1 ? last_scale : 1;
    ExpectStepAsOnHost(host, on_device, Scaled(MakeData(data, n, step), scale), step);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(DgcOnDevice, SmallTensorsOfEveryKind) {
  for (const std::string& data : DataNames()) {
    for (const std::size_t n : {1u, 2u, 33u, 199u, 1025u}) {
      ExpectSteps(device(), {}, data, n, n < 1000 ? 0.05 : 0.01, n != 199, 1);
    }
    ExpectSteps(device(), {}, data, 2000, 0.3, true, 2);
  }
  ExpectSteps(device(), {}, "gaussian", 9000, 0.01, true, 2);
  ExpectSteps(device(), {}, "sparse", 9000, 0.02, true, 2);
}

TEST_P(DgcOnDevice, LargerTensorsOfEveryKind) {
  const std::vector<std::string> few = {"gaussian", "few-values", "zeros"};
  for (const std::string& data : kSanitized ? few : DataNames()) {
    ExpectSteps(device(), {}, data, 20'011, 0.01, true, 1);
  }
  // There are more equal elements than candidates fit.
  ExpectSteps(device(), {}, "equal", 70'001, 0.002, true, 1);
  ExpectSteps(device(), {}, "sparse", 70'001, 0.02, true, 1);
  ExpectSteps(device(), {{"max_iterations", std::int64_t{0}}}, "equal", 70'001, 0.002, false, 1);
  ExpectSteps(device(), {{"strided", false}}, "equal", 70'001, 0.002, true, 1);
  ExpectSteps(device(), {{"strided", false}}, "sparse", 70'001, 0.02, true, 1);
  ExpectSteps(device(), {}, "laplace", 20'011, 0.2, true, 1);
  ExpectSteps(device(), {}, "gaussian", 17'000, 0.0001, true, 1);  // all elements are sampled
  ExpectSteps(device(), {}, "gaussian", 17'000, 1.0, true, 1);
}

TEST_P(DgcOnDevice, EveryOption) {
  const std::vector<Options> all = {
      {{"resample", false}},
      {{"resample", false}, {"upper_bound", 1.05}, {"lower_bound", 0.95}},
      {{"resample", false}, {"upper_bound", 100.0}, {"lower_bound", 0.9999}},
      {{"max_iterations", std::int64_t{0}}},
      {{"max_iterations", std::int64_t{1}}, {"resample", false}},
      {{"max_iterations", std::int64_t{200}}, {"lower_bound", 0.99}, {"upper_bound", 1.01}},
      {{"sample_ratio", 0.1}},
      {{"sample_ratio", 1.0}},
      {{"strided", false}},
      {{"exact_trim", true}},
      {{"exact_trim", true}, {"max_iterations", std::int64_t{0}}}};
  for (const Options& options : all) {
    for (const char* data : {"gaussian", "few-values", "clustered", "equal"}) {
      if (kSanitized && data != std::string_view("few-values")) continue;
      ExpectSteps(device(), options, data, 3000, 0.02, true, 1);
    }
    ExpectSteps(device(), options, "gaussian", 20'011, 0.005, true, 1);
    ExpectSteps(device(), options, "few-values", 20'011, 0.005, true, 1);
  }
}

// A bound of the last step that is far too high or too low leaves useless candidates.
TEST_P(DgcOnDevice, WhateverTheStepBeforeWas) {
  for (const float last_scale : {1.0f, 0.1f, 20.0f}) {
    if (kSanitized && last_scale == 1) continue;
    ExpectSteps(device(), {}, "gaussian", 20'011, 0.01, false, 4, last_scale);
    ExpectSteps(device(), {{"resample", false}}, "laplace", 20'011, 0.01, false, 4, last_scale);
    ExpectSteps(device(), {{"exact_trim", true}}, "gaussian", 20'011, 0.01, false, 4, last_scale);
    ExpectSteps(device(), {{"strided", false}}, "gaussian", 20'011, 0.01, false, 4, last_scale);
  }
}

TEST_P(DgcOnDevice, SelectsNothingWhereItIsNotWanted) {
  const auto dgc = MakeSparsifier("dgc");
  for (const std::size_t n : {500u, 20'000u}) {
    DeviceSelection selection(*dgc, device(), n, 0.01, true);
    const auto gradient = MakeData("gaussian", n, 1);
    selection.Run(gradient, 0);
    const auto residual = selection.Residual();
    selection.SetOnlyIf(0);
    EXPECT_TRUE(selection.Run(gradient, 1).indices.empty());
    EXPECT_EQ(Bits(selection.Residual()), Bits(residual));
  }
}

}  // namespace
}  // namespace sparfuse::testing

// Tests that all-dimension top-k on a device selects the host's elements, bit for bit.
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/devices/device_selection.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::testing {
namespace {

using Shape = std::vector<std::int64_t>;

class AdTopKOnDevice : public OnDevices {
 protected:
  void ExpectAsOnHost(const Shape& shape, const std::string& axis, double density,
                      const std::string& data, bool feedback, std::size_t skew = 0) {
    const std::size_t n = ElementsOf(shape);
    SCOPED_TRACE("axis " + axis + ", density " + std::to_string(density) + ", " + data +
                 ", shape " + ::testing::PrintToString(shape));
    const auto adtopk = MakeSparsifier("adtopk", {{"axis", axis}});
    Selection host(*adtopk, n, density, 1, feedback, shape);
    DeviceSelection selection(*adtopk, device(), n, density, feedback, 0, skew, 0, shape);
    for (std::uint64_t step = 0; step < (feedback ? 2 : 1); ++step) {
      const auto x = MakeData(data, n, n + step);
      ExpectStepAsOnHost(host, selection, x, step);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(AdTopKOnDevice, SelectsInFibresOfEveryLength) {
  for (const Shape& shape : std::vector<Shape>{
           {700, 2}, {90, 31}, {40, 33}, {17, 512}, {3, 1024}, {2, 1025}, {2, 5120}, {1, 9000}}) {
    ExpectAsOnHost(shape, "1", 0.01, "gaussian", true);
    ExpectAsOnHost(shape, "1", 0.06, "gaussian", false);
  }
}

TEST_P(AdTopKOnDevice, SelectsInStridedFibres) {
  for (const Shape& shape : std::vector<Shape>{{5, 40, 3, 3},
                                               {3, 3, 7, 7},
                                               {4, 4, 1, 5},
                                               {2, 1200, 3, 3},
                                               {2, 5, 50, 50},
                                               {1, 3000, 2, 2}}) {
    ExpectAsOnHost(shape, "1", 0.05, "gaussian", true);
  }
  // Slices larger than a tile, by columns and transposed.
  ExpectAsOnHost({150, 61}, "0", 0.05, "gaussian", true);
  ExpectAsOnHost({600, 18}, "0", 0.1, "few-values", false);
  ExpectAsOnHost({20, 500}, "0", 0.5, "few-values", true);
  ExpectAsOnHost({1100, 9}, "longest", 0.02, "gaussian", true);
  ExpectAsOnHost({1100, 9}, "longest", 0.02, "few-values", false);
}

// A bound has few maxima or none: a fibre keeps more than one element for each lane, or for each of
// 64.
TEST_P(AdTopKOnDevice, SelectsManyOfEachFibre) {
  for (const auto& [shape, density] : std::vector<std::pair<Shape, double>>{{{5, 100}, 0.4},
                                                                            {{4, 768}, 0.05},
                                                                            {{3, 600}, 0.3},
                                                                            {{2, 2000}, 0.3},
                                                                            {{2, 2000}, 0.9},
                                                                            {{3, 200, 2, 2}, 0.5},
                                                                            {{40, 20}, 0.5}}) {
    ExpectAsOnHost(shape, "1", density, "gaussian", true);
    ExpectAsOnHost(shape, "1", density, "few-values", false);
  }
  ExpectAsOnHost({8, 30}, "1", 1.0, "gaussian", true);
}

// Ties go to the lower index, across lanes, words, warps and segments.
TEST_P(AdTopKOnDevice, BreaksTiesByIndex) {
  for (const std::string data : {"zeros", "equal", "few-values", "alternating", "sparse",
                                 "denormal", "layers", "ascending"}) {
    ExpectAsOnHost({40, 30}, "1", 0.1, data, true);
    ExpectAsOnHost({5, 500}, "1", 0.05, data, true);
    ExpectAsOnHost({2, 2000}, "1", 0.05, data, true);
    ExpectAsOnHost({3, 150, 3, 3}, "1", 0.05, data, true);
  }
  ExpectAsOnHost({1, 17'000, 1}, "1", 0.6, "equal", false);
  ExpectAsOnHost({2, 9000}, "1", 0.95, "few-values", false);
}

TEST_P(AdTopKOnDevice, TakesAddressesThatAreNotAligned) {
  for (const Shape& shape : std::vector<Shape>{{17, 512}, {2, 2000}, {3, 41, 3, 3}, {40, 30}}) {
    ExpectAsOnHost(shape, "1", 0.05, "gaussian", true, 1);
  }
}

// One dimension is a single fibre: the exact top-k of all elements.
TEST_P(AdTopKOnDevice, TakesOneDimensionAsOneFibre) {
  ExpectAsOnHost({20'000}, "1", 0.01, "gaussian", true);
}

TEST_P(AdTopKOnDevice, NamesTheFirstElementThatIsNotFinite) {
  for (const Shape& shape : std::vector<Shape>{{40, 500},
                                               {4, 5000},
                                               {20, 100, 3, 3},
                                               {2, 950, 3, 3},
                                               {2, 1100, 3, 3},
                                               {2, 3, 60, 50}}) {
    const std::size_t n = ElementsOf(shape);
    for (const bool feedback : {false, true}) {
      DeviceSelection selection(MakeSparsifier("adtopk"), device(), n, 0.01, feedback, 0, 0, 0,
                                shape);
      auto x = MakeData("gaussian", n, 1);
      x[n - 7] = x[n - 6] = x[n - 1] = kNan;
      ExpectError(FailureKind::kNumeric, {"element " + std::to_string(n - 7) + " "},
                  [&] { selection.Run(x, 41); });
    }
  }
}

TEST_P(AdTopKOnDevice, RefusesAShapeOfAnotherSize) {
  DeviceSelection selection(MakeSparsifier("adtopk"), device(), 100, 0.1, false, 50, 0, 0,
                            {10, 11});
  ExpectError(FailureKind::kConfig, {"100 elements; expected the elements of its shape, 110"},
              [&] { selection.Run(std::vector<float>(100, 1.0f), 0); });
}

// The two forms that alternate selections, compared with the host step by step.
class AdTopKPhasesOnDevice : public OnDevices {
 protected:
  void ExpectAsOnHost(const std::string& name, const Options& options, const Shape& shape,
                      std::uint64_t steps,
                      const std::function<std::vector<float>(std::uint64_t)>& gradient) {
    const std::size_t n = ElementsOf(shape);
    const auto on_host = MakeSparsifier(name, options);
    const auto on_device = MakeSparsifier(name, options);  // one tau for all tensors, as published
    Selection host(*on_host, n, 0.02, 1, true, shape);
    DeviceSelection selection(*on_device, device(), n, 0.02, true, 0, 0, 0, shape);
    for (std::uint64_t step = 0; step < steps; ++step) {
      ExpectStepAsOnHost(host, selection, gradient(step), step);
      if (HasFatalFailure()) return;
    }
  }
};

std::vector<float> Gaussian(std::uint64_t step) { return MakeData("gaussian", 4000, step); }

TEST_P(AdTopKPhasesOnDevice, InterleavesAsTheHostDoes) {
  ExpectAsOnHost("adtopk-interleaved", {}, {40, 100}, 5, Gaussian);
}

// A warm-up, thresholds that hold, one that fails after a jump of the scale, and later refreshes.
TEST_P(AdTopKPhasesOnDevice, KeepsAThresholdAsTheHostDoes) {
  const auto gradient = [](std::uint64_t step) {
    return Scaled(MakeData("gaussian", 4000, step), step < 11 ? 1 : step < 25 ? 7 : 0.07f);
  };
  ExpectAsOnHost("adtopk-threshold", {{"warmup", std::int64_t{2}}}, {40, 100}, 40, gradient);
}

// The gradient hardly changes: the threshold is steady, and in the end it is not needed.
TEST_P(AdTopKPhasesOnDevice, EndsInAllDimensionAsTheHostDoes) {
  const auto gradient = [](std::uint64_t step) {
    return Scaled(MakeData("laplace", 4000, 1), 1 + 0.001f * static_cast<float>(step));
  };
  ExpectAsOnHost("adtopk-threshold",
                 {{"warmup", std::int64_t{1}}, {"training_steps", std::int64_t{32}}}, {40, 100}, 32,
                 gradient);
}

TEST_P(AdTopKPhasesOnDevice, StagesThePublishedRule) {
  const auto sparsifier =
      MakeSparsifier("adtopk-threshold", {{"compat", std::string("reference")}});
  EXPECT_FALSE(sparsifier->SelectsOnDevice());
  ExpectAsOnHost("adtopk-threshold", {{"compat", std::string("reference")}}, {40, 100}, 20,
                 Gaussian);
}

SPARFUSE_ON_DEVICES(AdTopKPhasesOnDevice);
SPARFUSE_ON_DEVICES(AdTopKOnDevice);

}  // namespace
}  // namespace sparfuse::testing

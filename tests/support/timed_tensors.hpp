// Holds models with given sizes and backward times, for solvers of published planners, and visits
// all partitions of a small model.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/fusion/layout.hpp"
#include "core/fusion/plan_times.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {

using Lengths = std::vector<std::size_t>;  // tensors of each unit, in ready order

struct TimedTensors {
  std::vector<std::size_t> elements;
  std::vector<double> backward_seconds;

  ReadyTensors view() const { return {elements, backward_seconds}; }
  std::size_t size() const { return elements.size(); }
  void Add(std::size_t numel, double seconds) {
    elements.push_back(numel);
    backward_seconds.push_back(seconds);
  }
  GradientLayout Layout() const { return LayoutOf(elements); }
  double AllBackwardSeconds() const {
    return std::accumulate(backward_seconds.begin(), backward_seconds.end(), 0.0);
  }
};

// 200 tensors. Tensor l of the forward pass has 64 (1 + (37 l mod 101)^2) elements and takes 50 (1
// + l mod 7) us. In total: 43,012,800 elements, 39.7 ms.
inline TimedTensors Synthetic() {
  TimedTensors tensors;
  for (std::size_t l = 200; l-- > 0;) {
    const std::size_t root = 37 * l % 101;
    tensors.Add(64 * (1 + root * root), 5e-5 * static_cast<double>(1 + l % 7));
  }
  return tensors;
}

// VGG-16 for ImageNet on one GPU, as Espresso publishes it; the first gradient takes no time.
inline TimedTensors MeasuredVgg16() {
  const struct {
    std::size_t elements;
    int microseconds;
  } measured[] = {
      {1000, 0},   {4096000, 69},   {4096, 266}, {16777216, 227}, {4096, 1161}, {102760448, 1505},
      {512, 1621}, {2359296, 573},  {512, 100},  {2359296, 1911}, {512, 97},    {2359296, 1869},
      {512, 635},  {2359296, 5385}, {512, 241},  {2359296, 5341}, {512, 298},   {1179648, 2966},
      {256, 1191}, {589824, 6284},  {256, 507},  {589824, 6277},  {256, 499},   {294912, 3677},
      {128, 2308}, {147456, 10394}, {128, 1012}, {73728, 6359},   {64, 4555},   {36864, 14434},
      {64, 2004},  {1728, 1544}};
  TimedTensors tensors;
  for (const auto& [elements, microseconds] : measured) tensors.Add(elements, 1e-6 * microseconds);
  return tensors;
}

// The five tensors of the specification's small examples.
inline TimedTensors FiveTensors() {
  TimedTensors tensors;
  tensors.Add(1000000, 0.003);
  tensors.Add(1000, 0.0005);
  tensors.Add(500000, 0.004);
  tensors.Add(2000, 0.001);
  tensors.Add(100000, 0.002);
  return tensors;
}

// At most `most` tensors of 1 to 1,000 elements, each with up to a second of backward.
inline TimedTensors RandomTensors(std::size_t most, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform;
  TimedTensors tensors;
  const std::size_t count = 1 + random() % most;
  const double slowest = uniform(random);
  for (std::size_t t = 0; t < count; ++t)
    tensors.Add(1 + random() % 1000, slowest * uniform(random));
  return tensors;
}

// 30 tensors of up to 4 * `most` elements, which a ring of four cuts evenly.
inline TimedTensors RingTensors(std::size_t most, std::size_t most_microseconds,
                                std::mt19937& random) {
  TimedTensors tensors;
  for (std::size_t t = 0; t < 30; ++t) {
    tensors.Add(4 * (1 + random() % most),
                1e-6 * static_cast<double>(random() % most_microseconds));
  }
  return tensors;
}

// A profile with a declared link of 1 Gbit/s and 100 us; local work takes 1 us and 1 ns an element.
struct TimedProfile {
  GradientLayout layout;
  BackwardProfile backward;
  CostModel cost = EvenCost();
  Topology topology{4, 1};

  explicit TimedProfile(const TimedTensors& tensors) : layout(tensors.Layout()) {
    backward.backward_seconds = tensors.backward_seconds;
  }
  PlanInput Input(Sparsified sparsified) const {
    const double density = sparsified == Sparsified::kNever ? 1.0 : 0.25;
    return InputOf(layout, topology, density, sparsified, backward, cost,
                   sparsified == Sparsified::kNever ? "" : "topk");
  }

  static double LocalSeconds(std::size_t n) { return 1e-6 + 1e-9 * static_cast<double>(n); }
  // Payloads of 8 bytes an element of a quarter go round a ring of four in three steps.
  static double GatherSeconds(std::size_t n) {
    return 3 * (1e-4 + 8e-9 * 8 * static_cast<double>(n / 4));
  }
  // Backward writes each gradient into the buffer.
  static TimedTensors WithCopies(TimedTensors tensors) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      tensors.backward_seconds[t] += LocalSeconds(tensors.elements[t]);
    }
    return tensors;
  }
  // The lengths of a plan whose units are all sparsified so.
  Lengths Planned(std::string_view planner, Sparsified sparsified, const Options& options = {},
                  Lane lane = Lane::kCompute) const {
    Lengths lengths;
    const PlanInput input = Input(sparsified);
    for (const Unit& unit : PlanOf(planner, input, options).units) {
      lengths.push_back(unit.last - unit.first);
      EXPECT_EQ(unit.sparsified, sparsified);
      EXPECT_EQ(unit.density, input.density);
      EXPECT_EQ(unit.lane, lane);
    }
    return lengths;
  }
};

// Expects that a solver refuses tensors that make no sense, in the name of its method.
inline void ExpectRefusals(const std::string& method,
                           const std::function<void(const TimedTensors&)>& solve) {
  const std::string finite = ": expected a finite number of at least 0";
  for (const auto& [tensors, why] : std::vector<std::pair<TimedTensors, std::string>>{
           {{}, "elements is empty"},
           {{{5, 0}, {1, 1}}, "elements[1] = 0: expected at least 1"},
           {{{5}, {}}, "backward_seconds has 0 numbers; expected one for each tensor, 1"},
           {{{3, 4}, {1, -2e-9}}, "backward_seconds[1] = -2e-09" + finite},
           {{{3}, {std::nan("")}}, "backward_seconds[0] = nan" + finite}}) {
    ExpectError(FailureKind::kConfig, {method + ": " + why}, [&, &of = tensors] { solve(of); });
  }
}

inline std::size_t Sum(const Lengths& lengths) {
  std::size_t sum = 0;
  for (const std::size_t length : lengths) sum += length;
  return sum;
}

inline Lengths Singles(std::size_t tensors) { return Lengths(tensors, 1); }

// Calls `visit` with each of the 2^(tensors - 1) partitions.
inline void ForEveryPartition(std::size_t tensors,
                              const std::function<void(const Lengths&)>& visit) {
  for (std::size_t cuts = 0; cuts < std::size_t{1} << (tensors - 1); ++cuts) {
    Lengths lengths = {1};
    for (std::size_t t = 1; t < tensors; ++t) {
      if ((cuts >> (t - 1) & 1) == 0) {
        ++lengths.back();
      } else {
        lengths.push_back(1);
      }
    }
    visit(lengths);
  }
}

}  // namespace sparfuse::testing

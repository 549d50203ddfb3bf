// Compares EarliestBuffers with the recurrence that it solves, written out: the buffers are the
// same, including ties and roundings.
#include "core/safusion/earliest_buffers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/cost/cost_model.hpp"
#include "core/fusion/plan_times.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

std::vector<std::size_t> PlainBuffers(const std::vector<double>& ready,
                                      const SecondsOfTensors& exchange) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t row = ready.size();
  std::vector<double> earliest(row, kNever);
  earliest[0] = 0;
  for (std::size_t j = 1; j < row; ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      earliest[j] = std::min(earliest[j], std::max(earliest[i], ready[j]) + exchange(i, j));
    }
  }
  std::vector<std::vector<std::size_t>> begins;
  std::vector<double> ends(row, kNever);
  ends[0] = 0;
  while (ends.back() > earliest.back() * (1 + 1e-9)) {
    std::vector<double> longer(row, kNever);
    std::vector<std::size_t>& begin = begins.emplace_back(row, 0);
    for (std::size_t j = 1; j < row; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        const double end = std::max(ends[i], ready[j]) + exchange(i, j);
        if (end >= longer[j]) continue;
        longer[j] = end;
        begin[j] = i;
      }
    }
    ends = longer;
  }
  std::vector<std::size_t> lengths;
  for (std::size_t u = begins.size(), last = row - 1; u-- > 0; last = begins[u][last]) {
    lengths.insert(lengths.begin(), last - begins[u][last]);
  }
  return lengths;
}

struct Problem {
  std::vector<double> ready = {0};
  std::vector<double> sizes = {0};  // of all earlier tensors
  PiecewiseLinear curve;

  double Exchange(std::size_t first, std::size_t last) const {
    return curve(sizes[last] - sizes[first]);
  }
  std::vector<double> grows() const {
    std::vector<double> seconds;
    for (const double size : sizes) seconds.push_back(curve.GrowthFrom0().slope * size);
    return seconds;
  }
};

// whole: the numbers are small integers, so that many partitions end at the same time.
Problem RandomProblem(std::size_t tensors, bool whole, std::size_t kinks, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform;
  const auto number = [&](double most) {
    return whole ? std::floor(most * uniform(random)) : most * uniform(random);
  };
  Problem problem;
  const double backward = number(6);
  for (std::size_t t = 0; t < tensors; ++t) {
    problem.ready.push_back(problem.ready.back() + (random() % 4 == 0 ? 0 : number(backward)));
    problem.sizes.push_back(problem.sizes.back() + 1 + (whole ? 0 : std::exp(4 * uniform(random))));
  }
  std::vector<std::pair<double, double>> points = {{0, number(9)}};
  for (std::size_t k = 0; k < kinks; ++k) {  // the curve may fall in between
    points.emplace_back(static_cast<double>(k + 1) * problem.sizes.back() / 9,
                        std::max(0.0, points.back().second + number(9) - 2));
  }
  points.emplace_back(problem.sizes.back(),
                      points.back().second + number(9) * static_cast<double>(tensors) / 4);
  problem.curve = PiecewiseLinear(points);
  return problem;
}

TEST(EarliestBuffers, AreThoseOfTheRecurrence) {
  std::mt19937 random(1);
  std::size_t several = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const std::size_t tensors = 1 + random() % (trial % 20 == 0 ? 120 : 30);
    const Problem problem = RandomProblem(tensors, trial % 2 == 0, trial % 3 * 3, random);
    const SecondsOfTensors exchange = [&](std::size_t first, std::size_t last) {
      return problem.Exchange(first, last);
    };
    const std::vector<std::size_t> expected = PlainBuffers(problem.ready, exchange);
    const std::vector<double> nothing(problem.ready.size());
    const double fall = problem.curve.GrowthFrom0().fall;
    ASSERT_EQ(EarliestBuffers(problem.ready, exchange, {problem.grows(), fall}), expected) << trial;
    ASSERT_EQ(EarliestBuffers(problem.ready, exchange, {nothing, fall}), expected) << trial;
    ASSERT_EQ(EarliestBuffers(problem.ready, exchange, {nothing, HUGE_VAL}), expected) << trial;
    several += expected.size() > 2;
  }
  EXPECT_GT(several, 60u);
}

// A bound that is too low would miss this: the exchange of all tensors is the shortest.
TEST(EarliestBuffers, LookBehindACurveThatFalls) {
  const std::vector<double> ready = {0, 1, 2, 3, 4};
  const SecondsOfTensors exchange = [](std::size_t first, std::size_t last) {
    return last - first == 4 ? 1.0 : 10.0;
  };
  EXPECT_EQ(EarliestBuffers(ready, exchange, {std::vector<double>(5), 9}),
            std::vector<std::size_t>{4});
}

// The planner's calls: times of a profile, on links of one rate and on measured curves, with and
// without the host's time of elements or of payloads.
TEST(EarliestBuffers, AreThoseOfTheRecurrenceByTheTimesOfAProfile) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform;
  for (int trial = 0; trial < 24; ++trial) {
    GradientLayout layout;
    BackwardProfile backward;
    const std::size_t tensors = 1 + random() % 120;
    for (std::size_t t = 0; t < tensors; ++t) {
      const auto numel = static_cast<std::size_t>(64 * std::exp(9 * uniform(random)));
      layout.Add("t" + std::to_string(t), {static_cast<std::int64_t>(numel)}, numel, t % 7 == 3);
      backward.backward_seconds.push_back(1e-5 + 4e-10 * static_cast<double>(numel));
    }
    CostModel cost = DeclaredCost(std::exp(7 * uniform(random) - 3), 2e-5);
    if (trial % 3 == 0) {  // a measured curve that falls between two sizes
      cost.links.fill({PiecewiseLinear({{0, 3e-5}, {64, 2.5e-5}, {4096, 4e-5}, {1e6, 2e-3}}), 0});
    }
    if (trial % 3 == 1) cost.all_gather = AllGatherBy::kTwoLevel;
    if (trial % 4 > 0) {
      cost.exchange_host_seconds = 1e-4 * uniform(random);
      cost.exchange_seconds_per_element = std::exp(-18 - 6 * uniform(random));
      cost.stages_payloads = trial % 4 == 2;
      cost.host_growth = 0.25;
    }
    const Topology topology = trial % 2 == 0 ? Topology{8, 1} : Topology{32, 4};
    for (const Sparsified sparsified : {Sparsified::kAhead, Sparsified::kNever}) {
      const PlanInput input = InputOf(layout, topology, 0.01, sparsified, backward, cost);
      const PlanTimes times(input, "test");
      const bool whole = sparsified == Sparsified::kNever;
      std::vector<double> computed = {0}, selected = {0}, ready = {0};
      std::vector<std::uint64_t> bytes = {0};
      std::vector<std::size_t> elements = {0};
      for (std::size_t t = 0; t < tensors; ++t) {
        const double density = whole || layout.tensor(t).dense ? 1.0 : 0.01;
        computed.push_back(computed.back() + times.Backward(t));
        selected.push_back(selected.back() + times.Sparsify(t, density));
        ready.push_back(computed.back() + selected.back());
        bytes.push_back(bytes.back() + PlannedPayloadBytes(layout, t, density));
        elements.push_back(elements.back() + layout.tensor(t).numel);
      }
      const std::vector<std::size_t> expected =
          PlainBuffers(ready, [&](std::size_t first, std::size_t last) {
            const std::size_t n = elements[last] - elements[first];
            const std::uint64_t sent = whole ? 0 : bytes[last] - bytes[first];
            return times.HostSecondsPerExchange(n, sent) +
                   (whole ? times.Reduce(n) : times.Gather(sent));
          });
      std::vector<std::size_t> planned;
      for (const Unit& unit : PlanOf("safusion", input, {{"tolerance", 0.0}}).units) {
        planned.push_back(unit.last - unit.first);
      }
      ASSERT_EQ(planned, expected) << trial;
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing

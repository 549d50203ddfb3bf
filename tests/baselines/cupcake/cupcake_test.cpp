// Tests Cupcake's boundary against every other boundary, its golden times, and its planner against
// the solver.
#include "baselines/cupcake/cupcake.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/timed_tensors.hpp"
#include "tests/support/unit_timeline.hpp"

namespace sparfuse::testing {
namespace {

using baselines::CupcakeSelection;
using baselines::CupcakeUnits;
using baselines::CupcakeUnitsByCount;

SecondsOfElements Line(double constant, double slope) {
  return [=](std::size_t elements) { return constant + slope * static_cast<double>(elements); };
}

UnitTimeline TimelineOf(const TimedTensors& tensors, const Lengths& units,
                        const SecondsOfElements& select, const SecondsOfElements& exchange,
                        CupcakeSelection selection) {
  return TimelineOf(tensors, units, select, exchange,
                    selection == CupcakeSelection::kWithinBackward ? SelectionLane::kBackward
                                                                   : SelectionLane::kOwn);
}

double EndOf(const TimedTensors& tensors, const Lengths& units, const SecondsOfElements& select,
             const SecondsOfElements& exchange, CupcakeSelection selection) {
  return TimelineOf(tensors, units, select, exchange, selection).end;
}

// Eight ranks, 50 us and 0.8 ns a byte, 8 bytes an element: the timelines of the specification.
// Forward takes half of backward, before it; decompression of each unit follows backward.
double GoldenStepSeconds(const TimedTensors& tensors, const Lengths& units, double density) {
  constexpr double kRanks = 8;
  double backward = 0.5 * tensors.AllBackwardSeconds();
  double selected = 0;
  double sent = 0;
  std::vector<std::pair<double, double>> summed;  // arrival of a unit, seconds of its average
  std::size_t t = 0;
  for (const std::size_t length : units) {
    double elements = 0;
    for (std::size_t i = 0; i < length; ++i, ++t) {
      backward += tensors.backward_seconds[t];
      elements += static_cast<double>(tensors.elements[t]);
    }
    const double kept = std::floor(density * elements);
    selected = std::max(selected, backward) + 3e-5 + 1e-10 * elements;
    sent = std::max(sent, selected) + (kRanks - 1) * (2 * 5e-5 + kept * 8 * 8e-10);
    summed.emplace_back(sent, 1e-5 + 2e-11 * kRanks * kept);
  }
  double end = backward;
  for (const auto& [there, average] : summed) end = std::max(end, there) + average;
  return end;
}

TEST(CupcakeSolver, ReproducesTheGoldenTimesOfASplitByCount) {
  const TimedTensors synthetic = Synthetic();
  const Lengths halves = CupcakeUnitsByCount(synthetic.size());
  EXPECT_EQ(halves, (Lengths{100, 100}));
  EXPECT_NEAR(GoldenStepSeconds(synthetic, halves, 0.01), 0.072051, 5.1e-7);
  EXPECT_NEAR(GoldenStepSeconds(synthetic, halves, 0.1), 0.236441, 5.1e-7);
  const TimedTensors vgg16 = MeasuredVgg16();
  EXPECT_NEAR(GoldenStepSeconds(vgg16, CupcakeUnitsByCount(vgg16.size()), 0.01), 0.1406, 5.1e-5);
  EXPECT_NEAR(GoldenStepSeconds(vgg16, CupcakeUnitsByCount(vgg16.size()), 0.1), 0.6985, 5.1e-5);
}

TEST(CupcakeSolver, CountsHalfOfTheTensorsAndTheOthers) {
  EXPECT_EQ(CupcakeUnitsByCount(1), Lengths{1});
  EXPECT_EQ(CupcakeUnitsByCount(2), (Lengths{1, 1}));
  EXPECT_EQ(CupcakeUnitsByCount(7), (Lengths{3, 4}));
}

TEST(CupcakeSolver, TakesTheBestOfOneUnitAndEveryBoundary) {
  std::mt19937 random(1);
  int whole = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const TimedTensors tensors = RandomTensors(60, random);
    const auto drawn = [&](double most) {
      return most * static_cast<double>(random() % 1000) / 1000;
    };
    const SecondsOfElements select = Line(drawn(0.5), drawn(1e-4));
    const SecondsOfElements exchange = Line(drawn(1), drawn(1e-3));
    for (const auto selection :
         {CupcakeSelection::kBesideBackward, CupcakeSelection::kWithinBackward}) {
      const Lengths units = CupcakeUnits(tensors.view(), select, exchange, selection);
      ASSERT_EQ(Sum(units), tensors.size());
      ASSERT_LE(units.size(), 2u);
      double least = EndOf(tensors, {tensors.size()}, select, exchange, selection);
      for (std::size_t first = 1; first < tensors.size(); ++first) {
        least = std::min(
            least, EndOf(tensors, {first, tensors.size() - first}, select, exchange, selection));
      }
      EXPECT_LE(EndOf(tensors, units, select, exchange, selection), least * (1 + 1e-12));
      EXPECT_LE(least,
                EndOf(tensors, CupcakeUnitsByCount(tensors.size()), select, exchange, selection));
      whole += units.size() == 1;
    }
  }
  EXPECT_GT(whole, 20);
  EXPECT_LT(whole, 900);
}

// The paper's F: the selections and communication that backward does not hide, beyond backward.
TEST(CupcakeSolver, MinimisesThePapersF) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 100; ++trial) {
    const TimedTensors tensors = RandomTensors(20, random);
    const SecondsOfElements select = Line(0.1, 1e-5);
    const SecondsOfElements exchange = Line(0.2, 1e-4);
    const double backward = tensors.AllBackwardSeconds();
    const auto f = [&](const Lengths& units) {
      const UnitTimeline timeline =
          TimelineOf(tensors, units, select, exchange, CupcakeSelection::kWithinBackward);
      const double exposed = timeline.end - backward - timeline.selections;
      return timeline.selections + exposed;
    };
    const double mine =
        f(CupcakeUnits(tensors.view(), select, exchange, CupcakeSelection::kWithinBackward));
    EXPECT_LE(mine, f({tensors.size()}) + 1e-12);
    for (std::size_t first = 1; first < tensors.size(); ++first) {
      EXPECT_LE(mine, f({first, tensors.size() - first}) + 1e-12);
    }
  }
}

TEST(CupcakeSolver, CutsOnlyWhereThatHidesSomething) {
  TimedTensors together;  // all gradients at once: a second message only takes more time
  for (int t = 0; t < 6; ++t) together.Add(100, t == 0 ? 1.0 : 0.0);
  TimedTensors apart;
  for (int t = 0; t < 6; ++t) apart.Add(100, 1.0);
  for (const auto selection :
       {CupcakeSelection::kBesideBackward, CupcakeSelection::kWithinBackward}) {
    EXPECT_EQ(CupcakeUnits(together.view(), Line(0, 0), Line(0.1, 0.01), selection), Lengths{6});
    // A message whose only cost is its start-up is not cut.
    EXPECT_EQ(CupcakeUnits(apart.view(), Line(0, 0), Line(100, 0), selection), Lengths{6});
    // Five of six tensors are sent in 1 s, as long as the last one's backward takes.
    EXPECT_EQ(CupcakeUnits(apart.view(), Line(0, 0), Line(0, 0.002), selection), (Lengths{5, 1}));
    EXPECT_EQ(CupcakeUnits(apart.view(), Line(0, 0), Line(0, 0), selection), Lengths{6});
  }
}

// With longer start-up times, the end is not earlier.
TEST(CupcakeSolver, EndsNoEarlierWhereExchangesTakeLonger) {
  const TimedTensors tensors = Synthetic();
  const SecondsOfElements select = Line(3e-5, 1e-10);
  for (const auto selection :
       {CupcakeSelection::kBesideBackward, CupcakeSelection::kWithinBackward}) {
    double before = 0;
    for (const double alpha : {0.0, 1e-4, 1e-3, 1e-2}) {
      const SecondsOfElements exchange = Line(alpha, 1e-9);
      const double end = EndOf(tensors, CupcakeUnits(tensors.view(), select, exchange, selection),
                               select, exchange, selection);
      EXPECT_GE(end, before);
      before = end;
    }
  }
}

TEST(CupcakeSolver, TakesASingleTensorAndRefusesWhatMakesNoSense) {
  const auto units = [](const TimedTensors& tensors) {
    return CupcakeUnits(tensors.view(), Line(1, 1), Line(1, 1), CupcakeSelection::kBesideBackward);
  };
  EXPECT_EQ(units({{5}, {1}}), Lengths{1});
  EXPECT_EQ(units({{5}, {0}}), Lengths{1});
  ExpectRefusals("Cupcake", units);
}

TEST(CupcakePlanner, AsksTheSolverWithTheTimesOfMergedSizes) {
  std::mt19937 random(3);
  const auto local = TimedProfile::LocalSeconds, gather = TimedProfile::GatherSeconds;
  // A selection takes 1.4 times as long on the side lane.
  const auto beside = [&](std::size_t n) { return 1.4 * local(n); };
  int differ = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const TimedTensors own = RingTensors(5000, 1000, random);
    TimedProfile profile(own);
    profile.cost.side_slowdown = 1.4;
    const TimedTensors tensors = TimedProfile::WithCopies(own);
    const Lengths side = profile.Planned("cupcake", Sparsified::kBehind, {}, Lane::kSide);
    EXPECT_EQ(side,
              CupcakeUnits(tensors.view(), beside, gather, CupcakeSelection::kBesideBackward));
    const Lengths compute =
        profile.Planned("cupcake", Sparsified::kBehind, {{"lane", std::string("compute")}});
    EXPECT_EQ(compute,
              CupcakeUnits(tensors.view(), local, gather, CupcakeSelection::kWithinBackward));
    differ += side != compute;
  }
  EXPECT_GT(differ, 0);
}

// Only a unit that is selected as a whole can be selected on a lane of its own.
TEST(CupcakePlanner, LeavesOtherUnitsOnTheLaneOfBackward) {
  const TimedProfile profile(FiveTensors());
  for (const Sparsified how : {Sparsified::kNever, Sparsified::kAhead}) {
    for (const Unit& unit : PlanOf("cupcake", profile.Input(how)).units) {
      EXPECT_EQ(unit.lane, Lane::kCompute);
    }
  }
}

TEST(CupcakePlanner, NeedsAProfileUnlessItCounts) {
  const PlannerDescriptor& planner = FindPlanner("cupcake");
  const TimedProfile profile(FiveTensors());
  PlanInput input = profile.Input(Sparsified::kBehind);
  input.cost = nullptr;
  const Options count = {{"boundary", std::string("count")}};
  EXPECT_FALSE(planner.needs_profile(ResolveOptions("cupcake", planner.options, count)));
  EXPECT_EQ(PlanOf("cupcake", input, count).UnitSizes(), "2,3");
  EXPECT_TRUE(planner.needs_profile(ResolveOptions("cupcake", planner.options, {})));
  EXPECT_THROW(PlanOf("cupcake", input), Error);
}

}  // namespace
}  // namespace sparfuse::testing

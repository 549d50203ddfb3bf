// Tests OMGS-SGD's solver against golden plans and its assumed timeline. Also tests its planner
// against the solver.
#include "baselines/omgs/omgs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/timed_tensors.hpp"
#include "tests/support/unit_timeline.hpp"

namespace sparfuse::testing {
namespace {

using baselines::OmgsAllGathers;
using baselines::OmgsFirstPair;
using baselines::OmgsUnits;

constexpr double kTopkSeconds = 2.18896957e-10;  // published for a P102-100

double Select(std::size_t elements) {
  return baselines::OmgsSelectionSeconds(kTopkSeconds, elements);
}

struct Golden {
  TimedTensors tensors;
  OmgsAllGathers exchange;
  std::size_t units, published_units;
  Lengths begins, published_begins;
  double end, published_end;
  double tolerance;
};

void ExpectGolden(const Golden& golden) {
  SCOPED_TRACE(golden.end);
  const auto first = [](const Lengths& units, std::size_t count) {
    return Lengths(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(count));
  };
  const Lengths units = OmgsUnits(golden.tensors.view(), Select, golden.exchange);
  ASSERT_EQ(units.size(), golden.units);
  EXPECT_EQ(first(units, golden.begins.size()), golden.begins);
  EXPECT_NEAR(TimelineOf(golden.tensors, units, Select, golden.exchange).end, golden.end,
              golden.tolerance);

  Lengths published =
      OmgsUnits(golden.tensors.view(), Select, golden.exchange, OmgsFirstPair::kMerged);
  ASSERT_EQ(published.size(), golden.published_units);
  EXPECT_EQ(first(published, golden.published_begins.size()), golden.published_begins);
  // In its own model the first tensor is sent alone.
  --published.front();
  published.insert(published.begin(), 1);
  EXPECT_NEAR(TimelineOf(golden.tensors, published, Select, golden.exchange).end,
              golden.published_end, golden.tolerance);
}

TEST(OmgsSolver, ReproducesTheGoldenPlansOfTheSyntheticModel) {
  const TimedTensors tensors = Synthetic();
  constexpr double kDigits = 5.1e-7;  // golden times are given to the microsecond
  ExpectGolden(
      {tensors, {4.0e-3, 1.5e-8, 0.01, 8}, 1, 1, {200}, {200}, 0.699380, 0.693390, kDigits});
  ExpectGolden(
      {tensors, {1.1e-2, 1.7e-8, 0.001, 16}, 1, 1, {200}, {200}, 0.394053, 0.391998, kDigits});
  const OmgsAllGathers of_10_gbe{8.5e-5, 1.4e-10, 0.01, 8};
  ExpectGolden({tensors,
                of_10_gbe,
                155,
                154,
                {1, 2, 1, 1, 1, 1, 1, 1, 2, 1},
                {3, 1, 1, 1, 1, 1, 1, 2, 1, 1},
                0.214246,
                0.214246,
                kDigits});
  ExpectGolden({tensors, {2e-5, 1.4e-9, 0.01, 8}, 193, 192, {}, {}, 0.212622, 0.212622, kDigits});

  const UnitTimeline timeline =
      TimelineOf(tensors, OmgsUnits(tensors.view(), Select, of_10_gbe), Select, of_10_gbe);
  EXPECT_NEAR(timeline.selections, 0.174337, kDigits);
  EXPECT_NEAR(timeline.exchanges, 0.030204, kDigits);
}

TEST(OmgsSolver, ReproducesTheGoldenPlansOfMeasuredAndSmallModels) {
  const TimedTensors vgg16 = MeasuredVgg16();
  const OmgsAllGathers of_1_gbe{4.0e-3, 1.5e-8, 0.01, 8};
  const Lengths three = {5, 8, 19};
  EXPECT_EQ(OmgsUnits(vgg16.view(), Select, of_1_gbe), three);
  const UnitTimeline timeline = TimelineOf(vgg16, three, Select, of_1_gbe);
  EXPECT_NEAR(timeline.end, 1.9072, 5.1e-5);
  EXPECT_NEAR(timeline.selections, 0.7916, 5.1e-5);

  const TimedTensors five = FiveTensors();
  const OmgsAllGathers slow_to_start{2.7e-3, 1.3e-8, 0.01, 4};
  ExpectGolden({five, slow_to_start, 1, 1, {5}, {5}, 0.029801, 0.025306, 5.1e-7});
  const UnitTimeline whole = TimelineOf(five, {5}, Select, slow_to_start);
  EXPECT_NEAR(whole.selections, 0.007233, 5.1e-7);
  EXPECT_NEAR(whole.exchanges, 0.012068, 5.1e-7);
  const UnitTimeline published = TimelineOf(five, {1, 4}, Select, slow_to_start);
  EXPECT_NEAR(published.selections, 0.006897, 5.1e-7);
  EXPECT_NEAR(published.exchanges, 0.017468, 5.1e-7);
  ExpectGolden(
      {five, {1e-4, 1.3e-8, 0.01, 4}, 4, 3, {1, 2, 1, 1}, {3, 1, 1}, 0.017924, 0.017924, 5.1e-7});
}

TEST(OmgsSolver, GivesEveryTensorAUnit) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const TimedTensors tensors = RandomTensors(40, random);
    const double topk_seconds = 1e-5 * static_cast<double>(random() % 100);
    const auto select = [&](std::size_t x) {
      return baselines::OmgsSelectionSeconds(topk_seconds, x);
    };
    const OmgsAllGathers exchange{0.01 * static_cast<double>(random() % 100),
                                  1e-6 * static_cast<double>(random() % 100), 0.1, 8};
    for (const OmgsFirstPair pair : {OmgsFirstPair::kDecided, OmgsFirstPair::kMerged}) {
      const Lengths units = OmgsUnits(tensors.view(), select, exchange, pair);
      EXPECT_EQ(Sum(units), tensors.size());
      EXPECT_TRUE(std::ranges::none_of(units, [](std::size_t n) { return n == 0; }));
      if (pair == OmgsFirstPair::kMerged && tensors.size() > 1) {
        EXPECT_GE(units.front(), 2u);
      }
    }
  }
}

// A start-up time that exceeds all other times is paid once. If start-ups are free, a unit waits
// only while the link is busy.
TEST(OmgsSolver, MergesForStartUpTimes) {
  std::mt19937 random(2);
  const auto no_selection = [](std::size_t) { return 0.0; };
  for (int trial = 0; trial < 200; ++trial) {
    const TimedTensors tensors = RandomTensors(30, random);
    EXPECT_EQ(OmgsUnits(tensors.view(), Select, OmgsAllGathers{100, 1e-6, 0.01, 8}),
              Lengths{tensors.size()});
    const OmgsAllGathers busy{0, 1e-3, 0.01, 8};
    const Lengths units = OmgsUnits(tensors.view(), no_selection, busy);
    EXPECT_LE(TimelineOf(tensors, units, no_selection, busy).end,
              TimelineOf(tensors, Singles(tensors.size()), no_selection, busy).end * (1 + 1e-9));
    EXPECT_EQ(OmgsUnits(tensors.view(), no_selection, OmgsAllGathers{0, 0, 0.01, 8}),
              Singles(tensors.size()));
  }
}

// Only the published code merges a pair that waits longer than it saves.
TEST(OmgsSolver, MergesTheFirstPairOnlyWhereItPays) {
  TimedTensors tensors;
  for (int t = 0; t < 4; ++t) tensors.Add(10, 1.0);
  const OmgsAllGathers exchange{0.1, 0, 0.01, 8};
  EXPECT_EQ(OmgsUnits(tensors.view(), Select, exchange), Singles(4));
  EXPECT_EQ(OmgsUnits(tensors.view(), Select, exchange, OmgsFirstPair::kMerged),
            (Lengths{2, 1, 1}));
  TimedTensors one;
  one.Add(1, 1.0);
  for (const OmgsFirstPair pair : {OmgsFirstPair::kDecided, OmgsFirstPair::kMerged}) {
    EXPECT_EQ(OmgsUnits(one.view(), Select, exchange, pair), Lengths{1});
  }
}

TEST(OmgsSolver, RefusesWhatMakesNoSense) {
  ExpectRefusals("OMGS-SGD", [](const TimedTensors& tensors) {
    OmgsUnits(tensors.view(), Select, OmgsAllGathers{});
  });
}

TEST(OmgsPlanner, AsksTheSolverWithTheTimesOfMergedSizes) {
  std::mt19937 random(3);
  int merged = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const TimedTensors tensors = RingTensors(5000, 1000, random);
    const TimedProfile profile(tensors);
    const TimedTensors with_copies = TimedProfile::WithCopies(tensors);
    for (const auto& [solver, pair] : {std::pair{"paper", OmgsFirstPair::kDecided},
                                       std::pair{"published", OmgsFirstPair::kMerged}}) {
      const Lengths lengths =
          profile.Planned("omgs", Sparsified::kBehind, {{"solver", std::string(solver)}});
      EXPECT_EQ(lengths, OmgsUnits(with_copies.view(), TimedProfile::LocalSeconds,
                                   TimedProfile::GatherSeconds, pair));
      merged += lengths.size() > 1 && lengths.size() < tensors.size();
    }
  }
  EXPECT_GT(merged, 50);
}

TEST(OmgsPlanner, PlansForEveryStrategy) {
  for (const Sparsified sparsified : {Sparsified::kNever, Sparsified::kAhead}) {
    const Plan plan = PlanOf("omgs", TimedProfile(FiveTensors()).Input(sparsified));
    for (const Unit& unit : plan.units) EXPECT_EQ(unit.sparsified, sparsified);
  }
}

TEST(OmgsPlanner, NeedsAProfile) {
  EXPECT_TRUE(FindPlanner("omgs").needs_profile({}));
  const TimedProfile profile(FiveTensors());
  PlanInput input = profile.Input(Sparsified::kBehind);
  input.backward = nullptr;
  EXPECT_THROW(PlanOf("omgs", input), Error);
  EXPECT_THROW(
      PlanOf("omgs", profile.Input(Sparsified::kBehind), {{"solver", std::string("exact")}}),
      Error);
}

}  // namespace
}  // namespace sparfuse::testing

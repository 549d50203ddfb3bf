// Tests MG-WFBP's solver against golden plans, all partitions of small layouts and its assumed
// timeline. Also tests its planner against the solver.
#include "baselines/mg-wfbp/mg_wfbp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/timed_tensors.hpp"
#include "tests/support/unit_timeline.hpp"

namespace sparfuse::testing {
namespace {

using baselines::AllReduceCost;
using baselines::MgWfbpUnits;

// All-reduces run one at a time, each when its unit is ready.
UnitTimeline TimelineOf(const TimedTensors& tensors, const Lengths& units,
                        const AllReduceCost& cost) {
  return TimelineOf(
      tensors, units, [](std::size_t) { return 0.0; },
      [&](std::size_t elements) { return cost.Seconds(elements); });
}

double End(const TimedTensors& tensors, const Lengths& units, const AllReduceCost& cost) {
  return TimelineOf(tensors, units, cost).end;
}

double EarliestEnd(const TimedTensors& tensors, const AllReduceCost& cost) {
  double earliest = std::numeric_limits<double>::infinity();
  ForEveryPartition(tensors.size(), [&](const Lengths& units) {
    earliest = std::min(earliest, End(tensors, units, cost));
  });
  return earliest;
}

// The published code's table for 16 workers.
constexpr AllReduceCost k10GbE{9.080981007148093e-4, 7.395651186836712e-10};
constexpr AllReduceCost k56GbInfiniBand{2.3583677659915685e-4, 4.0594787739537565e-10};
constexpr double kDigits = 5.1e-7;  // the golden times are given to the microsecond

TEST(MgWfbpSolver, ReproducesTheGoldenPlansOfTheSyntheticModel) {
  const TimedTensors tensors = Synthetic();
  const Lengths whole = {200};

  EXPECT_EQ(MgWfbpUnits(tensors.view(), k10GbE), whole);
  EXPECT_NEAR(End(tensors, whole, k10GbE), 0.167851, kDigits);
  EXPECT_NEAR(End(tensors, Singles(200), k10GbE), 0.309063, kDigits);

  const Lengths six = {4, 14, 28, 50, 90, 14};
  EXPECT_EQ(MgWfbpUnits(tensors.view(), k56GbInfiniBand), six);
  EXPECT_NEAR(End(tensors, six, k56GbInfiniBand), 0.073256, kDigits);
  EXPECT_NEAR(TimelineOf(tensors, six, k56GbInfiniBand).exchanges, 0.071259, kDigits);
  EXPECT_NEAR(End(tensors, Singles(200), k56GbInfiniBand), 0.117211, kDigits);
  EXPECT_NEAR(End(tensors, whole, k56GbInfiniBand), 0.109780, kDigits);

  const AllReduceCost fast{5e-5, 2e-10};
  const Lengths many = MgWfbpUnits(tensors.view(), fast);
  ASSERT_EQ(many.size(), 93u);
  EXPECT_EQ(Lengths(many.begin(), many.begin() + 10), (Lengths{1, 3, 2, 1, 2, 3, 3, 3, 1, 1}));
  EXPECT_NEAR(End(tensors, many, fast), 0.040101, kDigits);
  EXPECT_NEAR(TimelineOf(tensors, many, fast).exchanges, 0.039060, kDigits);
  EXPECT_NEAR(End(tensors, Singles(200), fast), 0.044610, kDigits);
  EXPECT_NEAR(End(tensors, whole, fast), 0.074160, kDigits);
}

TEST(MgWfbpSolver, ReproducesTheGoldenPlansOfMeasuredAndSmallModels) {
  const TimedTensors vgg16 = MeasuredVgg16();
  const Lengths three = {4, 24, 4};
  EXPECT_EQ(MgWfbpUnits(vgg16.view(), k10GbE), three);
  EXPECT_NEAR(End(vgg16, three, k10GbE), 0.4126, 5.1e-5);
  EXPECT_NEAR(End(vgg16, Singles(32), k10GbE), 0.4384, 5.1e-5);
  EXPECT_NEAR(End(vgg16, {32}, k10GbE), 0.4955, 5.1e-5);

  const TimedTensors five = FiveTensors();
  EXPECT_EQ(MgWfbpUnits(five.view(), {1e-3, 1e-9}), (Lengths{2, 2, 1}));
  EXPECT_NEAR(End(five, {2, 2, 1}, {1e-3, 1e-9}), 0.012912, 1e-12);
  EXPECT_EQ(MgWfbpUnits(five.view(), {1e-3, 1e-8}), (Lengths{2, 3}));
  EXPECT_NEAR(End(five, {2, 3}, {1e-3, 1e-8}), 0.06962, 1e-12);
}

TEST(MgWfbpSolver, IsNeverLaterThanAUnitForEachTensor) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const TimedTensors tensors = RandomTensors(40, random);
    for (const double alpha : {0.0, 0.01, 0.1, 1.0}) {
      for (const double beta : {0.0, 1e-5, 1e-4, 1e-2}) {
        const Lengths units = MgWfbpUnits(tensors.view(), {alpha, beta});
        ASSERT_EQ(Sum(units), tensors.size());
        ASSERT_TRUE(std::ranges::none_of(units, [](std::size_t n) { return n == 0; }));
        EXPECT_LE(End(tensors, units, {alpha, beta}),
                  End(tensors, Singles(tensors.size()), {alpha, beta}) * (1 + 1e-12));
      }
    }
  }
}

TEST(MgWfbpSolver, EndsEarliestOfAllPartitionsWhereThePaperIsRight) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const double alpha = 0.5 * static_cast<double>(random() % 100) / 100;
    const double beta = 1e-6 * static_cast<double>(random() % 1000);
    const TimedTensors two = RandomTensors(2, random);
    EXPECT_LE(End(two, MgWfbpUnits(two.view(), {alpha, beta}), {alpha, beta}),
              EarliestEnd(two, {alpha, beta}) * (1 + 1e-12));

    const TimedTensors within = RandomTensors(9, random);
    double wait = 0;  // for all gradients after the first
    for (std::size_t t = 1; t < within.size(); ++t) wait += within.backward_seconds[t];
    const AllReduceCost slow_to_start{1.01 * wait + 1e-9, beta};
    const Lengths units = MgWfbpUnits(within.view(), slow_to_start);
    EXPECT_EQ(units, Lengths{within.size()});
    EXPECT_LE(End(within, units, slow_to_start), EarliestEnd(within, slow_to_start) * (1 + 1e-12));
  }
}

// The paper calls its merging optimal. Waits of 1.91, 1.28 and 1.82 s, each below the start-up time
// of 2 s, add up to 5.01 s; a second message takes 2 s.
TEST(MgWfbpSolver, WaitsTooLongWhereWaitsAddUp) {
  TimedTensors tensors;
  for (const auto& [elements, seconds] :
       {std::pair{5, 2.1}, std::pair{4, 1.91}, std::pair{2, 1.28}, std::pair{2, 1.82}}) {
    tensors.Add(static_cast<std::size_t>(elements), seconds);
  }
  const AllReduceCost cost{2, 0.16};
  EXPECT_EQ(MgWfbpUnits(tensors.view(), cost), Lengths{4});
  EXPECT_GT(End(tensors, {4}, cost), 1.2 * EarliestEnd(tensors, cost));

  // e(j): the earliest end of messages with the first j tensors of the synthetic model.
  const TimedTensors model = Synthetic();
  std::vector<std::size_t> elements = {0};
  std::vector<double> ready = {0};
  for (std::size_t t = 0; t < model.size(); ++t) {
    elements.push_back(elements.back() + model.elements[t]);
    ready.push_back(ready.back() + model.backward_seconds[t]);
  }
  std::vector<double> earliest = {0};
  for (std::size_t j = 1; j < elements.size(); ++j) {
    earliest.push_back(std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < j; ++i) {
      earliest[j] = std::min(
          earliest[j], std::max(earliest[i], ready[j]) + k10GbE.Seconds(elements[j] - elements[i]));
    }
  }
  EXPECT_NEAR(earliest.back() / End(model, {200}, k10GbE), 0.78, 0.005);
}

TEST(MgWfbpSolver, MergesWhatWaitsAnywayWhereStartUpIsFree) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const TimedTensors tensors = RandomTensors(30, random);
    EXPECT_EQ(MgWfbpUnits(tensors.view(), {0, 0}), Singles(tensors.size()));
    const AllReduceCost slow{0, 1e-3};
    EXPECT_NEAR(End(tensors, MgWfbpUnits(tensors.view(), slow), slow),
                End(tensors, Singles(tensors.size()), slow), 1e-9);
  }
}

TEST(MgWfbpSolver, TakesModelsThatTakeNoTime) {
  TimedTensors tensors;
  tensors.Add(7, 0.5);
  EXPECT_EQ(MgWfbpUnits(tensors.view(), {1, 1}), Lengths{1});
  for (int t = 0; t < 4; ++t) tensors.Add(7, 0);
  EXPECT_EQ(MgWfbpUnits(tensors.view(), {1, 1}), Lengths{5});
}

TEST(MgWfbpSolver, RefusesWhatMakesNoSense) {
  ExpectRefusals("MG-WFBP", [](const TimedTensors& tensors) {
    MgWfbpUnits(tensors.view(), {1, 1});
  });
  const auto refused = [](const AllReduceCost& cost, const std::string& text) {
    const TimedTensors one{{3}, {1}};
    ExpectError(FailureKind::kConfig, {text}, [&] { MgWfbpUnits(one.view(), cost); });
  };
  refused({-1, 1}, "MG-WFBP: alpha_seconds = -1: expected a finite");
  refused({1, std::numeric_limits<double>::infinity()}, "seconds_per_byte = inf");
}

// A ring of four: 6 start-up times and 3/2 of the bytes. Its chunks are equal, so that the fitted
// line is exact.
TEST(MgWfbpPlanner, FitsTheProfileSAllReduce) {
  std::mt19937 random(4);
  int merged = 0;
  for (int trial = 0; trial < 50; ++trial) {
    const TimedTensors tensors = RingTensors(20000, 2000, random);
    const Lengths lengths = TimedProfile(tensors).Planned("mg-wfbp", Sparsified::kNever);
    EXPECT_EQ(lengths, MgWfbpUnits(TimedProfile::WithCopies(tensors).view(), {6e-4, 1.5 * 8e-9}));
    merged += lengths.size() > 1 && lengths.size() < tensors.size();
  }
  EXPECT_GT(merged, 25);
}

TEST(MgWfbpPlanner, SendsEachTensorByItselfWhereThereIsNobodyElse) {
  TimedProfile profile(FiveTensors());
  profile.topology = {1, 1};
  EXPECT_EQ(PlanOf("mg-wfbp", profile.Input(Sparsified::kNever)).UnitSizes(), "1,1,1,1,1");
}

TEST(MgWfbpPlanner, NeedsAProfile) {
  EXPECT_TRUE(FindPlanner("mg-wfbp").needs_profile({}));
  const TimedProfile profile(FiveTensors());
  PlanInput input = profile.Input(Sparsified::kNever);
  input.cost = nullptr;
  EXPECT_THROW(PlanOf("mg-wfbp", input), Error);
}

}  // namespace
}  // namespace sparfuse::testing

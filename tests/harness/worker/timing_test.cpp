// Tests the arithmetic of timed operations, and that ranks agree on the times.
#include "harness/worker/rank/timing.hpp"

#include <gtest/gtest.h>

#include "harness/worker/rank/quiet_monitor.hpp"
#include "tests/harness/worker/worker_ranks.hpp"

namespace sparfuse::harness {
namespace {

TEST(Excess, IsNeverBelowNothingAndAddsErrors) {
  const Estimate excess = Excess({5, 0.3}, {2, 0.4});
  EXPECT_DOUBLE_EQ(excess.value, 3);
  EXPECT_DOUBLE_EQ(excess.standard_error, 0.5);
  EXPECT_EQ(Excess({1, 0.1}, {2, 0.1}).value, 0);
}

TEST(TimeOf, RunsWhatItTimes) {
  int runs = 0;
  const Estimate time = TimeOf([&] { ++runs; }, 3);
  EXPECT_GE(runs, 5);  // twice before, and a batch each
  EXPECT_GE(time.value, 0);
  EXPECT_LT(time.value, 1);
}

class TimedRanks : public testing::WorkerRanks {};

TEST_F(TimedRanks, AgreeOnTheMean) {
  OnRanks(3, [](const Rank& rank) {
    EXPECT_EQ(MeanOverRanks(rank, 0.1 * rank.rank()), (0.0 + 0.1 + 0.2) / 3);
    EXPECT_DOUBLE_EQ(MeanOverRanks(rank, Estimate{1, 0.1 * rank.rank()}).standard_error, 0.1);
  });
}

TEST_F(TimedRanks, ReadWhatElseUsedTheirCoresOverSeveralIntervals) {
  OnRanks(2, [](const Rank& rank) {
    QuietMonitor monitor(rank, 4);
    for (int interval = 0; interval < 2; ++interval) {
      monitor.Begin();
      for (int step = 0; step < 2; ++step) monitor.StepIsDone(false);
      monitor.End();
    }
    PrivateFacts facts;
    const std::optional<Quiet> quiet = monitor.Gather(facts);
    EXPECT_EQ(quiet.has_value(), rank.rank() == 0);
    if (!quiet) return;
    EXPECT_GE(quiet->loop_seconds.size(), 4U);  // at each beginning and after each step
    EXPECT_GE(quiet->seconds, 0);
    EXPECT_FALSE(quiet->cards || quiet->limits);
    EXPECT_EQ(facts, PrivateFacts());
  });
}

// Ranks wait for one another around the loop, which would hide an exchange that goes on.
TEST_F(TimedRanks, RunNoLoopBesideAnExchangeThatGoesOn) {
  OnRanks(2, [](const Rank& rank) {
    const auto loops = [&](std::initializer_list<bool> under_way) {
      QuietMonitor monitor(rank, 4);
      monitor.Begin();
      for (const bool each : under_way) monitor.StepIsDone(each);
      monitor.End();
      PrivateFacts facts;
      const std::optional<Quiet> quiet = monitor.Gather(facts);
      return quiet ? quiet->loop_seconds.size() : 0U;
    };
    const auto here = [&](std::size_t count) { return rank.rank() == 0 ? count : 0U; };
    EXPECT_EQ(loops({false, false, false, false}), here(5));
    EXPECT_EQ(loops({true, true, false, true}), here(3));  // after the third step, and at the end
    EXPECT_EQ(loops({true, true, true, true}), here(2));
    EXPECT_EQ(loops({true, true, true, false}), here(2));
  });
}

}  // namespace
}  // namespace sparfuse::harness

// Tests the checks that every rank makes of its world: its size, its neighbour and the launch. Also
// tests the comparison of clocks with ranks whose clocks are set wrong and run wrong.
#include "core/transport/world/world_check.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/collective/collective.hpp"
#include "core/transport/threads.hpp"
#include "core/transport/world/clocks.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/run_ranks.hpp"

namespace sparfuse::testing {
namespace {

using namespace std::chrono_literals;

// The failures of `expected`'s ranks, one each, in a world of `ranks`.
std::vector<std::string> Check(int ranks, const std::vector<ExpectedWorld>& expected) {
  auto worlds = MakeThreadsWorld(ranks, ranks);
  std::vector<std::string> said(expected.size());
  OnThreads(expected.size(), [&](std::size_t r) {
    said[r] = FailureOf([&] { CheckWorld(*worlds[r], expected[r], 10s); });
  });
  return said;
}

TEST(WorldCheck, PassesWhereAllRanksAreOfOneLaunch) {
  for (const int ranks : {1, 2, 5}) {
    const std::vector<ExpectedWorld> all(static_cast<std::size_t>(ranks), {ranks, "a1"});
    for (const std::string& said : Check(ranks, all)) EXPECT_EQ(said, "none");
  }
}

TEST(WorldCheck, ARankOfAnotherLaunchIsMetByTheOneAfterIt) {
  const auto said = Check(3, {{3, "a1"}, {3, "b2"}, {3, "a1"}});
  EXPECT_SAYS(said[1], "config: ");
  EXPECT_SAYS(said[1], "met rank 0 of another launch");
  EXPECT_SAYS(said[2], "met rank 1 of another launch");
  EXPECT_EQ(said[0], "none");  // the rank before it is of its launch
}

class LaunchVariables : public ::testing::Test {
 protected:
  LaunchVariables() {
    for (const char* name : kNames) unsetenv(name);
  }
  ~LaunchVariables() override {
    for (const char* name : kNames) unsetenv(name);
  }
  static constexpr const char* kNames[] = {kWorldVariable, "OMPI_COMM_WORLD_RANK",
                                           "PMIX_RANK",    "PMI_RANK",
                                           "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
};

TEST_F(LaunchVariables, SingletonsAreAnErrorThatNamesTheRemedy) {
  const std::string said = Check(1, {{4, "a1"}})[0];
  EXPECT_SAYS(said, "MPI says rank 0 of 1, but 4 ranks were launched");
  EXPECT_SAYS(said, "expected the mpirun of the Open MPI that the worker is linked with");
  setenv("SLURM_PROCID", "2", 1);
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_SAYS(Check(1, {{4, "a1"}})[0], "expected srun --mpi=pmix");
}

TEST_F(LaunchVariables, SrunThatGivesRanksNoWayToMeetIsToldBeforeMpiIs) {
  const ExpectedWorld four{4, "a1"};
  EXPECT_EQ(FailureOf([&] { CheckLauncherOf(four); }), "none");  // started by mpirun or by hand
  setenv("SLURM_PROCID", "2", 1);
  EXPECT_EQ(FailureOf([&] { CheckLauncherOf(four); }), "none");  // an allocation without a step
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  const std::string said = FailureOf([&] { CheckLauncherOf(four); });
  EXPECT_SAYS(said, "rank 2 of 4: srun without PMIx");
  EXPECT_SAYS(said, "--mpi=pmix");
  EXPECT_EQ(FailureOf([] { CheckLauncherOf({1, "a1"}); }), "none");
  for (const char* means : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    setenv(means, "3", 1);
    EXPECT_EQ(FailureOf([&] { CheckLauncherOf(four); }), "none") << means;
    EXPECT_EQ(RankOfEnvironment(), 3);
    unsetenv(means);
  }
  EXPECT_EQ(RankOfEnvironment(), 2);
}

TEST_F(LaunchVariables, WhatIsExpectedIsReadAsItWasWritten) {
  EXPECT_FALSE(WorldOfEnvironment());
  setenv(kWorldVariable, ExpectedWorld({12, "0f3a"}).Text().c_str(), 1);
  ASSERT_TRUE(WorldOfEnvironment());
  EXPECT_EQ(WorldOfEnvironment()->ranks, 12);
  EXPECT_EQ(WorldOfEnvironment()->nonce, "0f3a");
  for (const char* wrong :
       {"", "4", "4:", ":a", "0:a", "-1:a", "4 :a", "4:123456789012345678901234567890123"}) {
    setenv(kWorldVariable, wrong, 1);
    EXPECT_SAYS(FailureOf([] { WorldOfEnvironment(); }), "expected RANKS:NONCE");
  }
}

constexpr int kRounds = 40;

// The clock of rank r. At its start it is `ahead` seconds ahead of rank 0's, and it gains `gain`
// seconds a second.
struct WrongClock {
  double ahead = 0, gain = 0;
  double begun = MonotonicSeconds();

  double Show(double true_seconds) const {
    return true_seconds + ahead + gain * (true_seconds - begun);
  }
  double TrueSeconds(double shown) const { return begun + (shown - ahead - begun) / (1 + gain); }
};

struct Compared {
  std::vector<WrongClock> clocks;
  std::vector<ClockLine> lines;
};

// Compares the clocks of four ranks, each with its own clock; rank 3 takes no part.
Compared Compare(std::chrono::milliseconds between) {
  Compared compared{{{}, {1000.5, 0}, {-20, 0.01}, {7, 0}}, std::vector<ClockLine>(4)};
  RunRanks(4, 1, 10s, [&](ProgressLoop& loop) {
    const auto r = static_cast<std::size_t>(loop.rank());
    const ClockSource clock = [&] { return compared.clocks[r].Show(MonotonicSeconds()); };
    const std::array others = {1, 2};
    const auto read = [&](ClockReading& reading) {
      loop.RunBlocking([&](Communicator& world) {
        return CompareClocks(world, others, kRounds, 3, clock, reading);
      });
    };
    read(compared.lines[r].before);
    std::this_thread::sleep_for(between);
    read(compared.lines[r].after);
    loop.RunBlocking([](Communicator& world) { return Barrier(world, 0); });
  });
  return compared;
}

TEST(Clocks, OffsetsAreRightWithinTheirUncertainty) {
  const Compared compared = Compare(0ms);
  for (const std::size_t rank : {1, 2}) {
    const ClockReading& reading = compared.lines[rank].before;
    // The moment on rank 0's clock, which is the true one.
    const double moment = compared.clocks[rank].TrueSeconds(reading.at_seconds);
    const double truth = moment - reading.at_seconds;
    EXPECT_GT(reading.uncertainty_seconds, 0);
    EXPECT_LT(reading.uncertainty_seconds, 1);
    EXPECT_NEAR(reading.offset_seconds, truth, reading.uncertainty_seconds) << rank;
  }
  for (const std::size_t rank : {0, 3}) {
    EXPECT_EQ(compared.lines[rank].before.offset_seconds, 0);
    EXPECT_EQ(compared.lines[rank].before.uncertainty_seconds, 0);
  }
}

TEST(Clocks, DriftIsFoundWithinItsUncertainty) {
  const Compared compared = Compare(200ms);
  for (const std::size_t rank : {1, 2}) {
    const ClockLine& line = compared.lines[rank];
    const double gain = compared.clocks[rank].gain;
    EXPECT_NEAR(line.drift(), -gain / (1 + gain), line.drift_uncertainty()) << rank;
    // Rank 0's time is also known midway.
    const double shown = (line.before.at_seconds + line.after.at_seconds) / 2;
    EXPECT_NEAR(line.OnRankZero(shown), compared.clocks[rank].TrueSeconds(shown),
                line.uncertainty_seconds());
  }
}

TEST(Clocks, ALineIsStraightBetweenItsReadings) {
  // Rank 0's clock is 5 s ahead at 100 s and 5.2 s ahead at 300 s: it gains a millisecond a second.
  const ClockLine line{{100, 5, 0.1}, {300, 5.2, 0.3}};
  EXPECT_NEAR(line.drift(), 1e-3, 1e-12);
  EXPECT_NEAR(line.drift_uncertainty(), 0.4 / 200, 1e-12);
  EXPECT_NEAR(line.OnRankZero(200), 205.1, 1e-9);
  EXPECT_EQ(line.uncertainty_seconds(), 0.3);
  const ClockLine same;
  EXPECT_EQ(same.OnRankZero(7), 7);
  EXPECT_EQ(same.drift_uncertainty(), 0);
}

}  // namespace
}  // namespace sparfuse::testing

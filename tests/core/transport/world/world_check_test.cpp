// Tests what every rank checks of its world: its size, its neighbour, the launch.
#include "core/transport/world/world_check.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "core/transport/threads.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/transport_cases.hpp"

namespace sparfuse::testing {
namespace {

using namespace std::chrono_literals;

// What each of `expected`'s ranks says, in a world of `ranks`; a rank each.
std::vector<std::string> Check(int ranks, const std::vector<ExpectedWorld>& expected) {
  auto worlds = MakeThreadsWorld(ranks, ranks);
  std::vector<std::string> said(expected.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    threads.emplace_back(
        [&, r] { said[r] = FailureOf([&] { CheckWorld(*worlds[r], expected[r], 10s); }); });
  }
  for (std::thread& thread : threads) thread.join();
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
  EXPECT_SAYS(said, "MPI says rank 0 of 1, and 4 ranks were launched");
  EXPECT_SAYS(said, "expected the mpirun of the Open MPI that the worker is linked with");
  setenv("SLURM_PROCID", "2", 1);
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_SAYS(Check(1, {{4, "a1"}})[0], "expected srun --mpi=pmix");
}

TEST_F(LaunchVariables, SrunThatGivesRanksNoWayToMeetIsToldBeforeMpiIs) {
  const ExpectedWorld four{4, "a1"};
  EXPECT_EQ(FailureOf([&] { CheckLauncherOf(four); }), "none");  // mpirun's own ranks, and by hand
  setenv("SLURM_PROCID", "2", 1);
  EXPECT_EQ(FailureOf([&] { CheckLauncherOf(four); }), "none");  // of an allocation, not of a step
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

}  // namespace
}  // namespace sparfuse::testing

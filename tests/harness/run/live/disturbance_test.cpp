// Tests which disturbed trials run again, and the reference for a trial's speed.
#include "harness/run/live/disturbance.hpp"

#include <gtest/gtest.h>

#include "harness/files/canonical.hpp"

namespace sparfuse::harness {
namespace {

System MachineOf(const char* processor) {
  System system;
  system.machine.emplace().processor = processor;
  return system;
}

const System kMachine = MachineOf("a");

PlannedTrial Planned(TrialKind kind = TrialKind::kThroughput, int workers = 2) {
  PlannedTrial trial;
  trial.config.kind = kind;
  trial.config.workers = workers;
  trial.system = kMachine;
  return trial;
}

Quiet Loops(double seconds) {
  Quiet readings;
  readings.loop_seconds = {seconds, seconds};
  return readings;
}

TrialRow Row(double seconds, int workers, const System& machine = kMachine) {
  TrialRow row;
  row.workers = workers;
  row.system_hash = HashOf(machine);
  row.quiet = ToJson(Loops(seconds));
  return row;
}

const Quiet kDisturbed = [] {
  Quiet quiet;
  quiet.disturbed = true;
  return quiet;
}();

TEST(Disturbances, RunAgainTwiceWithinHalfOfTheTime) {
  Disturbances runs({});
  EXPECT_FALSE(runs.RunsAgain(Planned(), Quiet(), 1, 10, 100));
  EXPECT_TRUE(runs.RunsAgain(Planned(), kDisturbed, 1, 10, 100));
  EXPECT_TRUE(runs.RunsAgain(Planned(), kDisturbed, 2, 10, 100));
  EXPECT_FALSE(runs.RunsAgain(Planned(), kDisturbed, 3, 10, 100));
  for (int more = 0; more < 3; ++more)
    EXPECT_TRUE(runs.RunsAgain(Planned(), kDisturbed, 1, 10, 100));  // 50 s in all
  EXPECT_FALSE(runs.RunsAgain(Planned(), kDisturbed, 1, 10, 100));
  EXPECT_TRUE(runs.RunsAgain(Planned(), kDisturbed, 1, 10, 120));  // more time is planned by now
}

TEST(Disturbances, NothingRunsAgainBeforeThePlanIsKnown) {
  Disturbances runs({});
  EXPECT_FALSE(runs.RunsAgain(Planned(), kDisturbed, 1, 10, -1));
}

TEST(Disturbances, ATrainedModelDoesNotRunAgain) {
  Disturbances runs({});
  EXPECT_FALSE(runs.RunsAgain(Planned(TrialKind::kConvergence), kDisturbed, 1, 1, 100));
  PlannedTrial once = Planned();
  once.quiet.reruns = 0;
  EXPECT_FALSE(runs.RunsAgain(once, kDisturbed, 1, 1, 100));
}

TEST(Disturbances, SpeedIsComparedWithTrialsOfAsManyRanksOnTheSameSystem) {
  const System elsewhere = MachineOf("b");
  Disturbances runs({Row(1e-3, 2), Row(2e-3, 2), Row(1e-4, 4), Row(1e-5, 2, elsewhere)});
  EXPECT_DOUBLE_EQ(runs.Judge(Planned(), Loops(2e-3))->slowdown.value(), 2);
  EXPECT_DOUBLE_EQ(runs.Judge(Planned(TrialKind::kThroughput, 1), Loops(2e-3))->slowdown.value(),
                   1);
  EXPECT_DOUBLE_EQ(runs.Judge(Planned(TrialKind::kThroughput, 1), Loops(3e-3))->slowdown.value(),
                   1.5);
  PlannedTrial there = Planned();
  there.system = elsewhere;
  EXPECT_DOUBLE_EQ(runs.Judge(there, Loops(2e-5))->slowdown.value(), 2);
}

TEST(Disturbances, AClockThatFellForGoodIsTheNewNormal) {
  std::vector<TrialRow> before(40, Row(1e-3, 2));
  Disturbances runs(before);
  for (int trial = 0; trial < 30; ++trial)
    EXPECT_EQ(runs.Judge(Planned(), Loops(2e-3))->disturbed, true) << trial;
  for (int trial = 0; trial < 10; ++trial) runs.Judge(Planned(), Loops(2e-3));
  EXPECT_EQ(runs.Judge(Planned(), Loops(2e-3))->disturbed, false);
}

TEST(Disturbances, OneLuckyTrialDoesNotMakeTheOthersSlow) {
  std::vector<TrialRow> before(10, Row(1e-3, 2));
  before.push_back(Row(0.7e-3, 2));
  EXPECT_DOUBLE_EQ(Disturbances(before).Judge(Planned(), Loops(1.1e-3))->slowdown.value(), 1.1);
}

}  // namespace
}  // namespace sparfuse::harness

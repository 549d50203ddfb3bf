// Tests the estimate of a run's remaining time from history and finished trials.
#include "harness/run/progress.hpp"

#include <gtest/gtest.h>

namespace sparfuse::harness {
namespace {

PlannedTrial Planned(const std::string& workload, Mode mode, double estimated_seconds) {
  PlannedTrial trial;
  trial.config.workload = workload;
  trial.config.mode = mode;
  trial.estimated_seconds = estimated_seconds;
  return trial;
}

TEST(RemainingTime, IsNotKnownWithoutHistoryUntilATrialOfTheKindIsDone) {
  const std::vector<PlannedTrial> trials = {
      Planned("a", Mode::kMeasured, 0), Planned("a", Mode::kMeasured, 0),
      Planned("b", Mode::kMeasured, 0), Planned("a", Mode::kModelled, 0)};
  RemainingTime remaining(trials, {});
  EXPECT_LT(remaining.Seconds(), 0);
  remaining.Done(10);
  EXPECT_LT(remaining.Seconds(), 0) << "no modelled trial is done";
  remaining.Done(20);
  remaining.Done(60);
  EXPECT_LT(remaining.Planned(), 0);
  remaining.Done(1);
  EXPECT_EQ(remaining.Seconds(), 0);
  EXPECT_EQ(remaining.Planned(), 91);
}

TEST(RemainingTime, TakesTheMeanOfAlikeTrialsAndElseOfTheKind) {
  const std::vector<PlannedTrial> first = {Planned("a", Mode::kMeasured, 0),
                                           Planned("b", Mode::kMeasured, 0)};
  const std::vector<PlannedTrial> then = {Planned("a", Mode::kMeasured, 0),
                                          Planned("c", Mode::kMeasured, 0)};
  RemainingTime remaining(first, then);
  remaining.Done(10);
  EXPECT_EQ(remaining.Seconds(), 10 + 10 + 10);
  remaining.Done(30);
  EXPECT_EQ(remaining.Seconds(), 10 + 20);
}

TEST(RemainingTime, ScalesHistoryByWhatTrialsOfTheKindTook) {
  const std::vector<PlannedTrial> trials(4, Planned("a", Mode::kMeasured, 10));
  RemainingTime remaining(trials, {});
  EXPECT_EQ(remaining.Seconds(), 40);
  remaining.Done(30);  // three times the history: half of that counts
  EXPECT_EQ(remaining.Seconds(), 3 * 20);
  remaining.Done(30);
  EXPECT_NEAR(remaining.Seconds(), 2 * 10 * 70.0 / 30, 1e-9);
  remaining.Insert({{Planned("a", Mode::kMeasured, 0)}});
  EXPECT_NEAR(remaining.Seconds(), 30 + 2 * 10 * 70.0 / 30, 1e-9);
}

}  // namespace
}  // namespace sparfuse::harness

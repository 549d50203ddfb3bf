// Tests the store: trials that are finished or absent, an index that can be made again, outcomes.
#include "harness/store/store.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <map>

#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/run/live/outcome.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;
namespace fs = std::filesystem;

class AStore : public ::testing::Test {
 protected:
  fs::path File(int block) const {
    return store_.Directory("e/p/wfbp-b" + std::to_string(block) + "-1") / "trial.json";
  }

  const TemporaryFolder folder_;
  const Store store_{folder_.path()};
  const StoreLock lock_{folder_.path()};
  std::vector<std::string> problems_;
};

TEST_F(AStore, OnlyFinishedTrialsExist) {
  const json finished = AddTrial(store_, lock_, 0);
  const std::string half = store_.CreateTrial(lock_, "e", "p", "wfbp-b1");
  std::ofstream(store_.Directory(half) / "config.json") << json{{"trial_id", half}};
  std::ofstream(store_.Directory(half) / "trial.json.tmp") << "{\"schema\": 1";
  const std::string empty = store_.CreateTrial(lock_, "e", "other", "empty-b0");
  ASSERT_EQ(store_.Rows(problems_).size(), 1u);
  EXPECT_TRUE(problems_.empty());
  const SweptTrials swept = store_.RemoveUnfinished(lock_);
  EXPECT_EQ(swept.unfinished, (std::vector<std::string>{empty, half}));
  EXPECT_FALSE(fs::exists(store_.Directory(half)));
  EXPECT_FALSE(fs::exists(store_.Directory(empty)));
  EXPECT_TRUE(fs::exists(store_.Directory(finished["trial_id"]) / "trial.json"));
}

TEST_F(AStore, CorruptTrialsAreNamedAndLeftOut) {
  for (int block = 0; block < 4; ++block) AddTrial(store_, lock_, block);
  fs::resize_file(File(0), 40);  // truncated
  json other = ReadJsonFile(File(1));
  other["config"]["workers"] = 8;  // edited by hand
  std::ofstream(File(1)) << other;
  other = ReadJsonFile(File(2));
  other.erase("metrics");
  std::ofstream(File(2)) << other;
  EXPECT_EQ(store_.Rows(problems_).size(), 1u);
  ASSERT_EQ(problems_.size(), 3u);
  EXPECT_SAYS(problems_[0], "breaks at byte");
  EXPECT_SAYS(problems_[1], "config_hash");
  EXPECT_SAYS(problems_[2], "trial.json: metrics is missing");
}

TEST_F(AStore, ReadersSeeWhatDisturbedATrial) {
  AddTrial(store_, lock_, 0);
  json trial = AddTrial(store_, lock_, 1);
  Quiet quiet;
  quiet.limits.emplace();
  quiet.disturbed = true;
  quiet.why = "other work";
  quiet.other_cpu = 0.5;
  trial["quiet"] = ToJson(std::optional(quiet));
  store_.Finish(lock_, TrialOf(trial));
  store_.OpenIndex(lock_, problems_);
  const auto rows = store_.ReadRows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_FALSE(rows[0].disturbed());
  EXPECT_EQ(rows[0].WhyDisturbed(), "");
  EXPECT_TRUE(rows[1].disturbed());
  EXPECT_EQ(rows[1].WhyDisturbed(), "other work");
  EXPECT_EQ(rows[1].quiet, trial["quiet"]);
  EXPECT_FALSE(rows[1].provenance.contains("quiet"));  // it lists only common facts
}

TEST_F(AStore, HowATrialWasLaunchedIsReadBackOrRefused) {
  json trial = AddTrial(store_, lock_, 0);
  trial["launch"] = {{"id", "e/p/wfbp-b0-1.1"}, {"trials", 6}, {"start_seconds", 2.5}};
  trial["rounds"] = {0.25, 0.5};
  store_.OpenIndex(lock_, problems_)
      .AddTrial(TrialOf(json(trial).patch(
          R"([{"op": "replace", "path": "/trial_id", "value": "e/p/other"}])"_json)));
  std::map<std::string, RowLaunch> launches;
  for (const TrialRow& row : store_.ReadRows()) launches[row.trial_id] = row.launch;
  const RowLaunch launch = launches.at("e/p/other");
  EXPECT_EQ(launch.id, "e/p/wfbp-b0-1.1");
  EXPECT_EQ(launch.trials, 6u);
  EXPECT_EQ(launch.start_seconds, 2.5);
  EXPECT_EQ(launch.rounds, (std::vector<double>{0.25, 0.5}));
  EXPECT_TRUE(launches.at(trial["trial_id"]).id.empty());  // like a row of an earlier version
  for (const auto& [key, wrong] : {std::pair<const char*, json>("rounds", {0.25, 0}),
                                   {"rounds", "fast"},
                                   {"launch", {{"id", 1}, {"trials", 6}}},
                                   {"launch", {{"id", "a"}, {"trials", 0}}}}) {
    json other = trial;
    other[key] = wrong;
    ExpectIn(std::string("trial.json: ") + key,
             ErrorOf([&] { TrialOf(other); }, FailureKind::kData));
  }
}

TEST_F(AStore, TheRebuiltIndexHasTheSameRows) {
  {
    Index index = store_.OpenIndex(lock_, problems_);
    for (int block = 0; block < 3; ++block) {
      index.AddTrial(TrialOf(AddTrial(store_, lock_, block, block == 1 ? "failed" : "ok")));
    }
    EXPECT_THROW(
        index.AddTrial(TrialOf(
            AddTrial(store_, lock_, 0)
                .patch(json::parse(
                    R"([{"op": "replace", "path": "/trial_id", "value": "e/p/wfbp-b0-1"}])")))),
        Error);  // rows are never replaced
  }
  const auto first = store_.ReadRows().front().trial_id;
  store_.Annotate(lock_, first, "the fan stood still");
  EXPECT_THROW(store_.Annotate(lock_, "e/p/none", "r"), Error);
  const auto before = store_.ReadRows();
  store_.RebuildIndex(lock_, problems_);
  const auto after = store_.ReadRows();
  EXPECT_TRUE(problems_.empty());
  ASSERT_EQ(before.size(), 4u);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].trial_id, before[i].trial_id);
    EXPECT_EQ(after[i].status, before[i].status);
    EXPECT_EQ(after[i].metrics, before[i].metrics);
    EXPECT_EQ(after[i].annotations, before[i].annotations);
    EXPECT_EQ(after[i].revisions, before[i].revisions);
    EXPECT_EQ(after[i].config, before[i].config);
  }
  EXPECT_FALSE(after.front().counts());  // annotated
}

TEST_F(AStore, TrialsOfAnOlderSchemaDoNotCountAndAreSaidTo) {
  for (int block = 0; block < 3; ++block) AddTrial(store_, lock_, block);
  store_.OpenIndex(lock_, problems_);
  for (int block = 0; block < 2; ++block) {
    json older = ReadJsonFile(File(block));
    older["schema"] = kTrialSchema - 1;
    std::ofstream(File(block)) << older;
  }
  ASSERT_TRUE(problems_.empty());
  EXPECT_EQ(store_.Rows(problems_).size(), 1u);
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_SAYS(problems_[0], "2 trial(s) were written by an older sparfuse");

  // A reader refuses an older index, and a writer makes it again.
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(store_.index_path().c_str(), &database), SQLITE_OK);
  sqlite3_exec(database, "PRAGMA user_version = 0", nullptr, nullptr, nullptr);
  sqlite3_close(database);
  EXPECT_THROW(store_.ReadRows(), Error);
  EXPECT_EQ(store_.OpenIndex(lock_, problems_).Rows().size(), 1u);
  EXPECT_EQ(store_.ReadRows().size(), 1u);
}

TEST_F(AStore, TrialsThatStartedTogetherAreInTheOrderOfTheirNumbers) {
  Index index = store_.OpenIndex(lock_, problems_);
  json trial = AddTrial(store_, lock_, 0, "invalid");
  trial["started_utc"] = "2026-01-01T00:00:00.000Z";
  trial["checks"] = {{"replicas_equal", false}, {"loss_finite", true}};
  for (const char* number : {"11", "2", "10"}) {
    trial["trial_id"] = std::string("e/p/wfbp-b0-") + number;
    index.AddTrial(TrialOf(trial));
  }
  const auto rows = index.Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].trial_id, "e/p/wfbp-b0-2");
  EXPECT_EQ(rows[2].trial_id, "e/p/wfbp-b0-11");
  EXPECT_EQ(rows[2].units.at("step_seconds"), "s");
  EXPECT_EQ(rows[2].failed_checks, std::vector<std::string>{"replicas_equal"});
}

TEST_F(AStore, RebuildingNamesTrialsThatTheirHashesContradict) {
  for (int block = 0; block < 3; ++block) {
    json config = AddTrial(store_, lock_, block)["config"];
    config["seed"] = block + 1;  // repeats a value of trial.json
    if (block == 1) config["density"] = 0.5;
    std::ofstream(File(block).parent_path() / "config.json") << config.dump();
  }
  json edited = ReadJsonFile(File(2));
  edited["system"]["cores"] = 64;
  std::ofstream(File(2)) << edited.dump();
  store_.RebuildIndex(lock_, problems_);
  EXPECT_EQ(store_.ReadRows().size(), 1u);
  ASSERT_EQ(problems_.size(), 2u);
  EXPECT_SAYS(problems_[0], "wfbp-b1-1: config_hash: trial.json has");
  EXPECT_SAYS(problems_[1], "wfbp-b2-1/trial.json: system_hash = ");
}

TEST_F(AStore, WhatTheIndexLacksIsAddedWhenItOpens) {
  AddTrial(store_, lock_, 0);  // as if killed between trial.json and the row
  EXPECT_EQ(store_.OpenIndex(lock_, problems_).Rows().size(), 1u);
  EXPECT_EQ(store_.OpenIndex(lock_, problems_).Rows().size(), 1u);
}

TEST(Store, ASecondRunIsToldWhoHoldsTheLock) {
  const TemporaryFolder folder;
  const StoreLock lock(folder.path());
  EXPECT_EQ(StoreLock::TryLock(folder.path()), nullptr);
  EXPECT_SAYS(ErrorOf([&] { const StoreLock second(folder.path()); }),
              "process " + std::to_string(getpid()));
}

TEST(Outcome, ATrialWithAFailedCheckOrANaNHasNoThroughput) {
  Outcome outcome;
  outcome.metrics = {{"throughput", {10.0, "images/s"}}};
  outcome.checks = {{"replicas_equal", true}};
  EXPECT_EQ(JudgeOutcome(outcome), outcome);
  outcome.checks["replicas_equal"] = false;
  EXPECT_EQ(JudgeOutcome(outcome).status, TrialStatus::kInvalid);
  EXPECT_TRUE(JudgeOutcome(outcome).metrics.empty());
  outcome.checks["replicas_equal"] = true;
  outcome.metrics["loss"] = {std::nan(""), ""};
  EXPECT_EQ(JudgeOutcome(outcome).failure->message, "metric loss is not a finite number");
}

TEST(Outcome, ARanksOwnErrorBeatsWhatItCausedInOthers) {
  const TemporaryFolder folder;
  const auto leave = [&](int rank, const char* kind, const char* message) {
    std::ofstream(folder.path() / ("failure-rank" + std::to_string(rank) + ".json"))
        << json{{"kind", kind}, {"message", message}, {"rank", rank}};
  };
  std::ofstream(folder.path() / "log.txt") << "some words\n";
  leave(0, "comm", "rank 1 closed");
  leave(1, "data", "digits.bin is truncated");
  LaunchResult end;
  end.exit_code = 1;
  Outcome outcome = CollectOutcome(folder.path(), end, 60);
  EXPECT_EQ(outcome.status, TrialStatus::kFailed);
  EXPECT_EQ(outcome.failure->kind, "data");
  EXPECT_EQ(outcome.failure->rank, 1);
  EXPECT_EQ(outcome.failure->log_tail, "some words\n");
  leave(2, "numeric", "a NaN in conv1");
  outcome = CollectOutcome(folder.path(), end, 60);
  EXPECT_EQ(outcome.status, TrialStatus::kInvalid);
  EXPECT_EQ(outcome.failure->rank, 2);
}

TEST(Outcome, OfAnotherFormIsAFailureThatNamesFileAndKey) {
  const TemporaryFolder folder;
  for (const auto& [text, said] :
       {std::pair("[]", "outcome.json: expected an object"),
        {R"({"status": "ok"})", "outcome.json: metrics is missing"},
        {R"({"status": "ok", "metrics": {}, "later": 1})", "outcome.json: later: unknown key"},
        {R"({"status": "ok", "metrics": {"loss": 1}})", "metrics.loss"}}) {
    std::ofstream(folder.path() / "outcome.json") << text;
    const Outcome outcome = CollectOutcome(folder.path(), LaunchResult(), 60);
    EXPECT_EQ(outcome.failure->kind, "data");
    ExpectIn(said, outcome.failure->message);
  }
}

TEST(Outcome, AKilledRankIsNamedFromTheLaunchersReport) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "log.txt")
      << "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n";
  std::ofstream(folder.path() / "failure-rank0.json")
      << R"({"kind":"comm","message":"lost rank 1","rank":0})";
  LaunchResult end;
  end.exit_code = 137;
  const Failure failure = *CollectOutcome(folder.path(), end, 60).failure;
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.signal, 9);
  ExpectIn("lost rank 1", failure.message);
}

TEST(Launcher, EndsEveryDescendantWhenTheTimeIsUp) {
  const TemporaryFolder folder;
  LaunchRequest request;
  // A grandchild in a session of its own, like Open MPI's ranks outside the launcher's group.
  request.argv = {"/bin/sh", "-c",
                  "setsid sleep 1000 & echo $! > " + (folder.path() / "pid").string() +
                      "; trap '' TERM; "
                      "while true; do sleep 1; done"};
  request.log = folder.path() / "log.txt";
  request.timeout_seconds = 2;
  const std::atomic<bool> interrupted{false};
  EXPECT_EQ(Launch(request, interrupted, nullptr).end, LaunchResult::End::kTimeout);
  std::ifstream in(folder.path() / "pid");
  pid_t pid = 0;
  ASSERT_TRUE(in >> pid);
  EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is still there";
}

TEST(Launcher, ReportsExitAndWhatCannotBeStarted) {
  const TemporaryFolder folder;
  LaunchRequest request;
  request.argv = {"/bin/sh", "-c", "echo words; exit 7"};
  request.log = folder.path() / "log.txt";
  const std::atomic<bool> interrupted{false};
  const auto end = Launch(request, interrupted, nullptr);
  EXPECT_EQ(end.end, LaunchResult::End::kExited);
  EXPECT_EQ(end.exit_code, 7);
  EXPECT_EQ(ReadFile(request.log), "words\n");
  request.argv = {"/nonexistent/program"};
  EXPECT_THROW(Launch(request, interrupted, nullptr), Error);
}

}  // namespace
}  // namespace sparfuse::harness

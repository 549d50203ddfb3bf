// Tests that the index answers for trials with unchanged files, and for no others.
#include "harness/store/index.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <thread>

#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class FollowingIndex : public ::testing::Test {
 protected:
  FollowingIndex() {
    StoreLock lock(folder_.path());
    for (int block = 0; block < 3; ++block) AddTrial(store_, lock, block);
    store_.OpenIndex(lock, problems_);
  }
  fs::path File(int block) const {
    return store_.trials() / "e" / "p" / ("wfbp-b" + std::to_string(block) + "-1") / "trial.json";
  }
  std::size_t Count() {
    problems_.clear();
    return store_.Rows(problems_).size();
  }
  void Execute(const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(store_.index_path().c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(database);
  }
  std::string ErrorOfRows() {
    return testing::ErrorOf([&] { store_.Rows(problems_); }, FailureKind::kData);
  }

  TemporaryFolder folder_;
  Store store_{folder_.path()};
  std::vector<std::string> problems_;
};

TEST_F(FollowingIndex, BrokenAndDeletedTrialsStopCountingAtOnce) {
  for (const bool held : {true, false}) {  // by a run: the index cannot be written
    const auto lock = held ? StoreLock::TryLock(folder_.path()) : nullptr;
    fs::resize_file(File(0), 40);
    EXPECT_EQ(Count(), 2u);
    ASSERT_EQ(problems_.size(), 1u);
    EXPECT_SAYS(problems_[0], "breaks at byte");
    EXPECT_EQ(store_.ReadRows().size(), held ? 3u : 2u);
  }
  EXPECT_EQ(Count(), 2u);  // a left-out trial is named each time
  EXPECT_EQ(problems_.size(), 1u);
  fs::remove_all(File(1).parent_path());
  EXPECT_EQ(Count(), 1u);
  EXPECT_EQ(store_.ReadRows().size(), 1u);
}

TEST_F(FollowingIndex, ATrialThatIsMendedCountsAgain) {
  const std::string whole = ReadFile(File(0));
  fs::resize_file(File(0), 40);
  EXPECT_EQ(Count(), 2u);
  std::ofstream(File(0)) << whole;
  EXPECT_EQ(Count(), 3u);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(FollowingIndex, FilesThatDidNotChangeAreNotReadAgain) {
  Execute("UPDATE trial SET seconds = 77");
  EXPECT_EQ(store_.Rows(problems_).front().seconds, 77);
  fs::last_write_time(File(0), fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(store_.Rows(problems_).front().seconds, 3.5);
}

TEST_F(FollowingIndex, ValuesAreCheckedWhenTheyAreRead) {
  const std::string kNone = "no error";
  const json good = ReadJsonFile(File(0));
  const auto with = [&](const char* pointer, const json& value) {
    json trial = good;
    trial[json::json_pointer(pointer)] = value;
    return testing::ErrorOf([&] { TrialOf(trial); }, FailureKind::kData);
  };
  EXPECT_EQ(with("/seconds", 3.5), kNone);
  EXPECT_SAYS(with("/status", "fine"), "expected one of ok, failed");
  EXPECT_NE(with("/metrics/step_seconds/value", 1e308), kNone);
  EXPECT_NE(with("/metrics/step_seconds/value", 0), kNone);
  const json rate = {{"value", -5}, {"unit", "images/s"}};
  EXPECT_EQ(with("/metrics/throughput", rate),
            "trial.json: metrics.throughput.value = -5: expected a rate above 0 and at most 1e15");
  EXPECT_NE(with("/metrics/sent_bytes", {{"value", -1}, {"unit", "bytes"}}), kNone);
  EXPECT_EQ(with("/metrics/other_seconds", {{"value", -1e-6}, {"unit", "seconds"}}), kNone);
  EXPECT_NE(with("/seconds", -1), kNone);
  EXPECT_NE(with("/block", 1LL << 40), kNone);
  EXPECT_NE(with("/checks/replicas_equal", false), kNone);
  Fingerprint fingerprint;
  fingerprint.quantities["top_k"] = {1, 1, 1, 3, "s"};
  const json taken = ToJson(fingerprint);
  EXPECT_EQ(with("/fingerprint", taken), kNone);
  for (const char* key : {"value", "low", "high"}) {
    json lacks = taken;
    lacks["quantities"]["top_k"].erase(key);
    EXPECT_EQ(with("/fingerprint", lacks),
              std::string("trial.json: fingerprint.quantities.top_k.") + key + " is missing");
  }
  EXPECT_NE(with("/fingerprint", "fast"), kNone);
}

TEST_F(FollowingIndex, AMissingTableIsNoticedAndMadeAgain) {
  Execute("DROP TABLE metric");
  {
    const auto lock = StoreLock::TryLock(folder_.path());
    EXPECT_THROW(store_.ReadRows(), Error);
    EXPECT_EQ(store_.Rows(problems_).front().metrics.at("step_seconds"), 0.5);
  }
  EXPECT_EQ(store_.Rows(problems_).front().metrics.at("step_seconds"), 0.5);
  ASSERT_FALSE(problems_.empty());
  EXPECT_SAYS(problems_.back(), "it has no table metric");
}

TEST_F(FollowingIndex, BrokenJsonInItNamesTheFileAndTheRemedy) {
  Execute("UPDATE trial SET config_json = '{\"a\":'");
  const std::string said = ErrorOfRows();
  EXPECT_SAYS(said, store_.index_path().string());
  EXPECT_SAYS(said, "--rebuild");
}

TEST_F(FollowingIndex, ALockedIndexIsNotToBeRebuilt) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(store_.index_path().c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  const std::string said = ErrorOfRows();
  sqlite3_close(database);
  EXPECT_SAYS(said, store_.index_path().string());
  EXPECT_SAYS(said, "another program has it open");
  EXPECT_EQ(said.find("--rebuild"), std::string::npos) << said;
}

TEST_F(FollowingIndex, ARunWaitsForAReader) {
  auto reader = StoreLock::TryLock(folder_.path());
  ASSERT_NE(reader, nullptr);
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    reader.reset();
  });
  EXPECT_NO_THROW(StoreLock{folder_.path()});
}

}  // namespace
}  // namespace sparfuse::harness

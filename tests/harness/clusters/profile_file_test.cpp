// Tests the files of profiles and fingerprints: their content comes back, and a cell finds its file
// and the parts of it that it uses.
#include "harness/clusters/profile_file.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;
using testing::Replaced;
namespace fs = std::filesystem;

CellConfig ConfigOf(const std::string& workload, int ranks, int batch = 32) {
  CellConfig config;
  config.kind = TrialKind::kProfile;
  config.workload = workload;
  config.batch_per_worker = batch;
  config.workers = ranks;
  return config;
}

ProfileOutcome Outcome(const std::string& workload, int ranks, int batch = 32) {
  ProfileOutcome outcome;
  outcome.config = ConfigOf(workload, ranks, batch);
  outcome.system = {{"cpu_model", "fast"}, {"cores", 2}, {"kernel", "Linux 6"}};
  outcome.started_utc = "2026-01-01T00:00:00.000Z";
  outcome.profile.pack = {{64, 1.23456789e-7}};
  return outcome;
}

TEST(ProfileFile, NamesAreNamesOfFiles) {
  EXPECT_EQ(ProfileFile("folder", "epyc-2.core_1"), "folder/epyc-2.core_1.json");
  for (const char* name : {"", "../secret", "a/b", ".hidden", "with space"}) {
    ExpectIn("expected letters", ErrorOf([&] { ProfileFile("folder", name); }));
  }
}

TEST(ProfileFile, ComesBackWithSixDigits) {
  const TemporaryFolder folder;
  const auto file = ProfileFile(folder.path() / "profiles", "x");
  WriteProfiles(file, {Outcome("text-gpt", 1), Outcome("text-gpt", 2)});
  const ProfileOutcomes read = ReadProfiles(file);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].profile.pack[0].seconds, 1.23457e-7);
  EXPECT_EQ(read[1].config, Outcome("text-gpt", 2).config);
}

class ProfileKind : public ::testing::Test {
 protected:
  void SetUp() override { WriteProfiles(file_, {Outcome("text-gpt", 1), Outcome("text-gpt", 2)}); }
  // The kind of the file's first outcome, with the text changed.
  std::string KindWith(const std::string& text) {
    WriteFileDurably(file_, text);
    return ReadProfiles(file_)[0].kind;
  }
  const TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "x.json";
};

TEST_F(ProfileKind, WhatTheProgramWroteIsMeasuredAndNothingElseIs) {
  const ProfileOutcomes read = ReadProfiles(file_);
  EXPECT_EQ(KindOfAll(read), kMeasured);
  EXPECT_FALSE(
      ToJson(read[0]).contains("kind"));  // or the identity of every model of it would change
  const std::string text = ReadFile(file_);
  const json raw = json::parse(text);
  const std::string digest = ",\"digest\":" + raw[0]["digest"].dump();
  for (const auto& [changed, kind] :
       {std::pair(Replaced(text, digest, ""), kByHand),
        {Replaced(Replaced(text, digest, ""), ",\"kind\":\"measured\",\"profile\"", ",\"profile\""),
         kByHand},
        {Replaced(Replaced(text, digest, ""), "\"kind\":\"measured\"", "\"kind\":\"declared\""),
         "declared"},
        {Replaced(Replaced(text, digest, ""), "\"kind\":\"measured\"", "\"kind\":\"imported\""),
         "imported"}}) {
    EXPECT_EQ(KindWith(changed), kind) << changed;
    EXPECT_EQ(KindOfAll(ReadProfiles(file_)), std::string("measured, in part ") + kind);
  }
}

// A change of any number of an outcome is detected.
TEST_F(ProfileKind, AChangedMeasurementIsRefusedWithWhatToDo) {
  const std::string text = ReadFile(file_);
  for (const auto& [old, now] : {std::pair("1.23457e-07", "1.23456e-07"),
                                 {"\"cores\":2", "\"cores\":3"},
                                 {"\"workers\":2", "\"workers\":4"},
                                 {"\"kind\":\"measured\"", "\"kind\":\"imported\""}}) {
    WriteFileDurably(file_, Replaced(text, old, now));
    const std::string message = ErrorOf([&] { ReadProfiles(file_); }, FailureKind::kData);
    ExpectIn("x.json: the outcome of \"text-gpt\" with batch 32, ", message);
    ExpectIn("\"digest\"", message);
    ExpectIn("\"declared\"", message);
  }
  // White space and key order are not content.
  EXPECT_EQ(KindWith(json::parse(text).dump(2)), kMeasured);
}

TEST_F(ProfileKind, AddingToAFileVouchesForNothingThatWasThere) {
  const std::string text = ReadFile(file_);
  const std::string digest = ",\"digest\":" + json::parse(text)[0]["digest"].dump();
  WriteFileDurably(file_, Replaced(text, digest, ""));
  ProfileOutcomes outcomes = ReadProfiles(file_);
  PutProfile(outcomes, Outcome("digits-resnet", 1));
  WriteProfiles(file_, outcomes);
  outcomes = ReadProfiles(file_);
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(outcomes[0].kind, kByHand);
  EXPECT_EQ(outcomes[1].kind, kMeasured);
  EXPECT_EQ(outcomes[2].kind, kMeasured);
}

TEST(ProfileFile, SaysWhatItIsNot) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "x.json";
  const auto message = [&](const char* text) {
    WriteFileDurably(file, text);
    return ErrorOf([&] { ReadProfiles(file); }, FailureKind::kData);
  };
  ExpectIn("x.json: expected an array of outcomes", message("[{\"config\": {}}]"));
  ExpectIn("x.json: 0: config.kind is missing", message("[{\"config\": {}, \"profile\": {}}]"));
}

TEST(ProfileFile, KnowsWhatItHas) {
  const ProfileOutcomes there = {Outcome("text-gpt", 1), Outcome("text-gpt", 2)};
  CellConfig config = ConfigOf("text-gpt", 2);
  const auto find = [&] { return FindMeasured("x.json", there, config); };
  EXPECT_EQ(find(), &there[1]);
  config.steps = 100;
  ExpectIn("x.json has text-gpt with batch 32 and 1 thread(s) a rank, 2 rank(s), link its own",
           ErrorOf(find));
  ExpectIn("another way (steps 1 -> 100)", ErrorOf(find));
  config.workers = 4;
  EXPECT_EQ(find(), nullptr);
}

TEST(ProfileFile, IsOfOneMachine) {
  const ProfileOutcomes there = {Outcome("text-gpt", 1)};
  json system = there[0].system;
  system["kernel"] = "Linux 7";  // the same machine
  CheckSameMachine("x.json", there, system);
  system["cores"] = 4;
  ExpectIn("x.json was measured on another machine (cores 2 -> 4)",
           ErrorOf([&] { CheckSameMachine("x.json", there, system); }));
}

TEST(ProfileFile, ReplacesWhatIsTheSame) {
  ProfileOutcomes outcomes = {Outcome("text-gpt", 1)};
  ProfileOutcome again = Outcome("text-gpt", 1);
  again.started_utc = "later";
  PutProfile(outcomes, again);
  PutProfile(outcomes, Outcome("text-gpt", 2));
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0].started_utc, "later");
}

TEST(FindProfile, TakesFromAFileWhatIsOfTheCell) {
  const TemporaryFolder folder;
  const Store store(folder.path());
  WriteProfiles(ProfileFile(store.profiles().own(), "x"),
                {Outcome("text-gpt", 1), Outcome("digits-resnet", 1), Outcome("text-gpt", 2),
                 Outcome("text-gpt", 1, 8)});
  CellConfig config = ConfigOf("text-gpt", 64);
  config.kind = TrialKind::kThroughput;
  config.cluster = "x";
  const Catalog catalog = SmallCatalog();
  const auto find = [&] { return FindProfile(catalog, store, {}, config, {}, ""); };
  const FoundProfile found = find();
  EXPECT_EQ(found.missing, "");
  ASSERT_EQ(found.content.size(), 2u);
  EXPECT_EQ(found.content[0].config.workers, 1);
  EXPECT_EQ(found.content[1].config.workers, 2);
  EXPECT_EQ(ModelledSystem(config, found.content, {}).kind, "");
  ProfileOutcomes by_hand = found.content;
  by_hand[1].kind = kByHand;
  EXPECT_EQ(ModelledSystem(config, by_hand, {}).kind, "measured, in part declared (by hand)");

  config.batch_per_worker = 16;
  config.link = LinkShape{10, 100};
  ExpectIn("x.json has no profile of text-gpt with batch 16 and 1 thread(s) a rank",
           find().missing);
  ExpectIn("`sparfuse profile text-gpt --batch 16 --threads 1 --link 10:100 --name x`",
           find().missing);
}

ProfileOutcome OutcomeOf(TrialKind kind, const std::string& workload, int ranks) {
  ProfileOutcome outcome;
  outcome.config.kind = kind;
  outcome.config.workload = workload;
  outcome.config.workers = ranks;
  return outcome;
}

class FingerprintFiles : public ::testing::Test {
 protected:
  void WriteFingerprint() {
    WriteProfiles(FingerprintFile(store_.profiles(), "lab"),
                  {OutcomeOf(TrialKind::kFingerprint, "", 4)});
  }
  // The profile of a modelled cell of 64 workers on `lab`.
  FoundProfile Find() const {
    CellConfig config;
    config.workload = "text-gpt";
    config.workers = 64;
    config.mode = Mode::kModelled;
    config.cluster = "lab";
    return FindProfile(SmallCatalog(), store_, {}, config, {}, "");
  }

  const TemporaryFolder folder_;
  const Store store_{folder_.path()};
};

TEST_F(FingerprintFiles, LieBesideProfilesAndAreClusters) {
  EXPECT_EQ(FingerprintFile(store_.profiles(), "lab"),
            folder_.path() / "systems" / "lab.fingerprint.json");
  ExpectIn("expected letters", ErrorOf([&] { FingerprintFile(store_.profiles(), "a/b"); }));
  ExpectIn("unknown cluster \"lab\"", ErrorOf([&] { NeedCluster(store_.profiles(), "lab"); }));
  WriteFingerprint();
  EXPECT_EQ(FingerprintNames(store_.profiles()), std::vector<std::string>{"lab"});
  NeedCluster(store_.profiles(), "lab");
}

TEST_F(FingerprintFiles, SayWhichCommandMeasuresAWorkloadsTimes) {
  WriteFingerprint();
  const FoundProfile profile = Find();
  EXPECT_TRUE(profile.content.empty());
  ExpectIn("lab.fingerprint.json has links and no times of text-gpt with batch 1", profile.missing);
  ExpectIn("`sparfuse profile text-gpt --batch 1 --threads 1 --name lab --ranks 1`",
           profile.missing);
}

TEST_F(FingerprintFiles, StandBehindTheTimesOfTheCellsWorkload) {
  WriteFingerprint();
  WriteProfiles(ProfileFile(store_.profiles().own(), "lab"),
                {OutcomeOf(TrialKind::kProfile, "digits-resnet", 1),
                 OutcomeOf(TrialKind::kProfile, "text-gpt", 1)});
  const FoundProfile profile = Find();
  ASSERT_EQ(profile.content.size(), 2u) << profile.missing;
  EXPECT_EQ(profile.content[0].config.workload, "text-gpt");
  EXPECT_TRUE(profile.content[1].is_fingerprint());
  EXPECT_FALSE(profile.content[0].is_fingerprint());
}

// A fingerprint that was changed by hand is refused, like a profile.
TEST_F(FingerprintFiles, AreSealed) {
  WriteFingerprint();
  const auto file = FingerprintFile(store_.profiles(), "lab");
  json edited = json::parse(ReadFile(file));
  edited[0]["profile"]["link"] = 1;
  WriteFileDurably(file, edited.dump());
  ExpectIn("changed after it was measured",
           ErrorOf([&] { MeasuredOf(store_.profiles(), "lab"); }, FailureKind::kData));
}

// Declared clusters read fingerprints as they read logs of other programs.
TEST_F(FingerprintFiles, AreLogsOfTheirRings) {
  ProfileOutcome outcome = OutcomeOf(TrialKind::kFingerprint, "", 8);
  outcome.config.ranks_per_node = 4;
  outcome.profile.link.emplace().round_seconds = {{0, 1e-5}, {4194304, 4e-3}};
  outcome.profile.node_link.emplace().round_seconds = {{0, 1e-6}, {4194304, 4e-4}};
  outcome.profile.native_all_reduce = {{1024, 1e-4}};
  const auto file = FingerprintFile(store_.profiles(), "lab");
  WriteProfiles(file, {outcome});
  const std::vector<LinkLog> logs = ReadFingerprintLogs(file);
  ASSERT_EQ(logs.size(), 3u);
  EXPECT_EQ(logs[0].operation, LinkOperation::kSendReceive);
  EXPECT_EQ(std::pair(logs[0].ranks, logs[0].nodes), std::pair(8, 2));
  EXPECT_EQ(logs[0].samples.front().bytes, 1);
  EXPECT_EQ(logs[0].samples.back().seconds, 4e-3);
  EXPECT_EQ(std::pair(logs[1].ranks, logs[1].nodes), std::pair(4, 1));
  EXPECT_EQ(logs[2].operation, LinkOperation::kAllReduce);
  WriteFingerprint();  // without links
  ExpectIn("lab.fingerprint.json: expected a fingerprint of two ranks or more",
           ErrorOf([&] { ReadFingerprintLogs(file); }));
}

}  // namespace
}  // namespace sparfuse::harness

// Tests the places of fingerprints, and the parts of them that a cluster's cells use.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;

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

// Tests files of profiles: what is written comes back, and which one a cell takes.
#include "harness/clusters/profile_file.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

CellConfig ConfigOf(const std::string& workload, int ranks, int batch = 32) {
  CellConfig config;
  config.kind = TrialKind::kProfile;
  config.workload = workload;
  config.batch_per_worker = batch;
  config.workers = ranks;
  return config;
}

json Outcome(const std::string& workload, int ranks, int batch = 32) {
  return {{"config", ToJson(ConfigOf(workload, ranks, batch))},
          {"system", {{"cpu_model", "fast"}, {"cores", 2}, {"kernel", "Linux 6"}}},
          {"started_utc", "2026-01-01T00:00:00.000Z"},
          {"profile", {{"pack", json::array({{64, 1.23456789e-7}})}}}};
}

template <class Call>
std::string MessageOf(const Call& call, FailureKind kind = FailureKind::kConfig) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

void ExpectIn(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ProfileFile, NamesAreNamesOfFiles) {
  EXPECT_EQ(ProfileFile("folder", "epyc-2.core_1"), "folder/epyc-2.core_1.json");
  for (const char* name : {"", "../secret", "a/b", ".hidden", "with space"}) {
    ExpectIn("expected letters", MessageOf([&] { ProfileFile("folder", name); }));
  }
}

TEST(ProfileFile, ComesBackWithSixDigits) {
  const TemporaryFolder folder;
  const auto file = ProfileFile(folder.path() / "profiles", "x");
  WriteProfiles(file, json::array({Outcome("text-gpt", 1), Outcome("text-gpt", 2)}));
  const json read = ReadProfiles(file);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0]["profile"]["pack"][0][1], 1.23457e-7);
  EXPECT_EQ(read[1]["config"], Outcome("text-gpt", 2)["config"]);
}

TEST(ProfileFile, SaysWhatItIsNot) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "x.json";
  const auto message = [&](const char* text) {
    WriteFileDurably(file, text);
    return MessageOf([&] { ReadProfiles(file); }, FailureKind::kData);
  };
  ExpectIn("x.json: expected an array of outcomes", message("[{\"config\": {}}]"));
  ExpectIn("lacks \"workload\"", message("{\"config\": {}, \"profile\": {}}"));
}

TEST(ProfileFile, KnowsWhatItHas) {
  const json there = json::array({Outcome("text-gpt", 1), Outcome("text-gpt", 2)});
  CellConfig config = ConfigOf("text-gpt", 2);
  const auto find = [&] { return FindMeasured("x.json", there, config); };
  EXPECT_EQ(find(), &there[1]);
  config.steps = 100;
  ExpectIn("x.json has text-gpt with batch 32 and 1 thread(s) a rank, 2 rank(s), link its own",
           MessageOf(find));
  ExpectIn("another way (steps 1 -> 100)", MessageOf(find));
  config.workers = 4;
  EXPECT_EQ(find(), nullptr);
}

TEST(ProfileFile, IsOfOneMachine) {
  const json there = json::array({Outcome("text-gpt", 1)});
  json system = there[0]["system"];
  system["kernel"] = "Linux 7";  // the same machine
  CheckSameMachine("x.json", there, system);
  system["cores"] = 4;
  ExpectIn("x.json was measured on another machine (cores 2 -> 4)",
           MessageOf([&] { CheckSameMachine("x.json", there, system); }));
}

TEST(ProfileFile, ReplacesWhatIsTheSame) {
  json outcomes = json::array({Outcome("text-gpt", 1)});
  json again = Outcome("text-gpt", 1);
  again["started_utc"] = "later";
  PutProfile(outcomes, again);
  PutProfile(outcomes, Outcome("text-gpt", 2));
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0]["started_utc"], "later");
}

TEST(FindProfile, TakesFromAFileWhatIsOfTheCell) {
  const TemporaryFolder folder;
  const Store store(folder.path());
  WriteProfiles(ProfileFile(store.profiles().own(), "x"),
                json::array({Outcome("text-gpt", 1), Outcome("digits-resnet", 1),
                             Outcome("text-gpt", 2), Outcome("text-gpt", 1, 8)}));
  CellConfig config = ConfigOf("text-gpt", 64);
  config.kind = TrialKind::kThroughput;
  config.cluster = "x";
  const Catalog catalog = SmallCatalog();
  const auto find = [&] { return FindProfile(catalog, store, {}, config, {}, ""); };
  const Profile found = find();
  EXPECT_EQ(found.missing, "");
  ASSERT_EQ(found.content.size(), 2u);
  EXPECT_EQ(found.content[0]["config"]["workers"], 1);
  EXPECT_EQ(found.content[1]["config"]["workers"], 2);

  config.batch_per_worker = 16;
  config.link = LinkShape{10, 100};
  ExpectIn("x.json has no profile of text-gpt with batch 16 and 1 thread(s) a rank",
           find().missing);
  ExpectIn("`sparfuse profile text-gpt --batch 16 --threads 1 --link 10:100 --name x`",
           find().missing);
}

}  // namespace
}  // namespace sparfuse::harness

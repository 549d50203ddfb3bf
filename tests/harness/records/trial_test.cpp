// Tests the records of a trial: they come back as written, and an invalid record is named by file,
// key, value and expectation.
#include "harness/records/trial.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/private_facts.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;

Trial SomeTrial() {
  Trial trial;
  trial.trial_id = "e/p/wfbp-0a1b2c3d-b0-1";
  trial.origin = "0a1b2c3d";
  trial.experiment = "e";
  trial.part = "p";
  trial.metrics = {{"step_seconds", {0.5, "s"}}, {"messages_sent", {6, "messages"}}};
  trial.checks = {{"replicas_equal", true}};
  trial.series["steps.npy"] = {6, "every step", {{"step_seconds", "seconds"}}};
  trial.machine.emplace().placement = {"host0", "host1"};
  trial.software = {"g++ 12.2.0", "", "unknown"};
  trial.quiet.emplace().other_cpu = 0.25;
  trial.layout = {{"conv.weight", {64, 3}, 192, false}};
  trial.rounds = {0.25, 0.5};
  trial.config = {{"kind", "throughput"}, {"workers", 2}};
  trial.config_hash = ConfigHash(trial.config);
  trial.system.machine.emplace().processor = "made up";
  trial.system_hash = HashOf(trial.system);
  trial.revisions = {{"method:wfbp", 1}};
  trial.source = {"unknown", std::nullopt};
  trial.environment = {{"OMP_NUM_THREADS", "1"}};
  trial.launch.emplace().id = "e/p/wfbp-0a1b2c3d-b0-1.1";
  trial.launch->trials = 2;
  trial.started_utc = "2026-01-31T12:34:56.789Z";
  trial.seconds = 3.5;
  trial.files = {"config.json"};
  return trial;
}

TEST(Trial, ComesBackAsItWasWritten) {
  const Trial trial = SomeTrial();
  const json written = ToJson(trial);
  EXPECT_EQ(TrialOf(written), trial);
  EXPECT_EQ(ToJson(TrialOf(json::parse(written.dump()))), written);
  EXPECT_EQ(written["system_hash"], ContentHash(written["system"]));
  Trial failed = trial;
  failed.status = TrialStatus::kFailed;
  failed.failure = Failure{"comm", 1, 9, "rank 1 on node7", "its log"};
  EXPECT_FALSE(ToJson(failed)["failure"].contains("message"));
  EXPECT_FALSE(ToJson(failed)["failure"].contains("log_tail"));
  EXPECT_EQ(TrialOf(ToJson(failed)).failure->signal, 9);
}

// The error of TrialOf for a trial with another value at `pointer`.
std::string With(const char* pointer, const json& value) {
  json trial = ToJson(SomeTrial());
  trial[json::json_pointer(pointer)] = value;
  return ErrorOf([&] { TrialOf(trial, "a/trial.json"); }, FailureKind::kData);
}

TEST(Trial, WhatNoRecordIsIsNamed) {
  json lacks = ToJson(SomeTrial());
  lacks.erase("revisions");
  EXPECT_EQ(ErrorOf([&] { TrialOf(lacks, "a/trial.json"); }, FailureKind::kData),
            "a/trial.json: revisions is missing");
  ExpectIn("a/trial.json: schema = 4: expected 3", With("/schema", kTrialSchema + 1));
  ExpectIn("a/trial.json: later: unknown key, perhaps of a later program", With("/later", 1));
  ExpectIn("a/trial.json: launch.later: unknown key", With("/launch/later", 1));
  ExpectIn("a/trial.json: seed = 1.5: expected an integer", With("/seed", 1.5));
  ExpectIn("a/trial.json: block = -1: expected an integer", With("/block", -1));
  ExpectIn("a/trial.json: status = \"fine\": expected one of ok", With("/status", "fine"));
  ExpectIn("a/trial.json: metrics.step_seconds.value = 0: expected seconds above 0",
           With("/metrics/step_seconds/value", 0));
  ExpectIn("a/trial.json: metrics.step_seconds.value = \"fast\": expected a number",
           With("/metrics/step_seconds/value", "fast"));
  ExpectIn("a/trial.json: checks.replicas_equal = 1: expected true or false",
           With("/checks/replicas_equal", 1));
  ExpectIn("a/trial.json: status = \"ok\": expected \"invalid\", for check replicas_equal failed",
           With("/checks/replicas_equal", false));
  ExpectIn("a/trial.json: config_hash", With("/config/workers", 3));
  ExpectIn("a/trial.json: config_hash", With("/config/of_no_cell", 3));
  ExpectIn("a/trial.json: config.workers = \"two\": expected an integer",
           With("/config/workers", "two"));
  ExpectIn("a/trial.json: config.mode = \"guessed\": expected one of measured",
           With("/config/mode", "guessed"));
  ExpectIn("a/trial.json: config.workers = 1.5: expected an integer",
           With("/config", {{"mode", "imported"}, {"workers", 1.5}}));
  ExpectIn("a/trial.json: config = 1: expected an object", With("/config", 1));
  ExpectIn("a/trial.json: seconds = 2000000000", With("/seconds", 2e9));
  ExpectIn("a/trial.json: draws.step_seconds",
           With("/draws", {{"loss", {1, 2}}, {"step_seconds", {1}}}));
}

// An unreadable file is named, stays unchanged, and does not keep others out.
TEST(Trial, FilesThatBreakAreNamedAndStay) {
  const TemporaryFolder folder;
  const Store store(folder.path());
  const StoreLock lock(folder.path());
  const std::string deep = R"({"config": )" + std::string(100'000, '[');
  const json good = AddTrial(store, lock, 0);
  std::string large = good.dump();
  large.replace(large.find("3.5"), 3, "1e999");
  const std::vector<std::pair<std::string, std::string>> broken = {
      {deep, "nested deeper than 200 levels"},
      {large, "a number is larger than any double"},
      {"{\"schema\": 3", "it breaks at byte"}};
  std::vector<std::filesystem::path> files;
  for (const auto& [text, said] : broken) {
    const std::string id = store.CreateTrial(lock, "e", "p", "broken");
    files.push_back(store.Directory(id) / "trial.json");
    std::ofstream(files.back()) << text;
  }
  std::vector<std::string> problems;
  EXPECT_EQ(store.Rows(problems).size(), 1u);
  ASSERT_EQ(problems.size(), broken.size());
  for (std::size_t i = 0; i < broken.size(); ++i) {
    ExpectIn(files[i].string(), problems[i]);
    ExpectIn(broken[i].second, problems[i]);
    EXPECT_EQ(ReadFile(files[i]), broken[i].first);
  }
}

TEST(Trial, OfAnOlderSchemaIsOlderUnlessItCameInABundle) {
  EXPECT_TRUE(IsOlderTrial({{"schema", 2}}));
  EXPECT_FALSE(IsOlderTrial({{"schema", 2}, {"redaction", 1}}));
  EXPECT_FALSE(IsOlderTrial({{"schema", kTrialSchema}}));
  json early = ToJson(SomeTrial());
  early["schema"] = 2;
  early["redaction"] = 2;
  early["machine"] = {{"placement", {"host0", "host1"}}, {"load_before", {0.5, 0.25}}};
  early["quiet"] = {{"other_cpu", 0.25}, {"disturbed", false}};
  const Trial read = TrialOf(early);
  EXPECT_EQ(read.machine->placement.size(), 2u);
  EXPECT_EQ(read.quiet->other_cpu, 0.25);
}

TEST(Outcome, HasTheFormOfWhatRankZeroLeaves) {
  const Outcome outcome =
      OutcomeOf(json::parse(R"({"status": "invalid", "reason": "replicas differ",
    "metrics": {"loss": {"value": null, "unit": "nats"}}, "checks": {"replicas_equal": false},
    "quiet": null, "plan": "3,8", "plans": [], "turn_seconds": 2,
    "selection_counters": {"selections": 3}})"));
  EXPECT_EQ(outcome.status, TrialStatus::kInvalid);
  EXPECT_FALSE(outcome.metrics.at("loss").value);
  EXPECT_EQ(outcome.turn_seconds, 2);
  ExpectIn("o/outcome.json: environ: unknown key",
           ErrorOf(
               [] {
                 OutcomeOf({{"status", "ok"}, {"metrics", json::object()}, {"environ", 1}},
                           "o/outcome.json");
               },
               FailureKind::kData));
}

TEST(PrivateFacts, VariablesThatEverybodyMaySeeStay) {
  std::map<std::string, std::string> environment = {{"OMP_NUM_THREADS", "4"},
                                                    {"MKL_NUM_THREADS", "my-password"},
                                                    {"CUDA_VISIBLE_DEVICES", "GPU-1f,GPU-2f"},
                                                    {"NCCL_ALGO", "Ring"},
                                                    {"NCCL_SOCKET_IFNAME", "eth7"}};
  const auto all = environment;
  PrivateFacts facts;
  TakeNames(environment, facts);
  EXPECT_EQ(environment,
            (std::map<std::string, std::string>{{"NCCL_ALGO", "Ring"}, {"OMP_NUM_THREADS", "4"}}));
  facts.environment.insert(environment.begin(), environment.end());
  EXPECT_EQ(facts.environment, all);
}

}  // namespace
}  // namespace sparfuse::harness

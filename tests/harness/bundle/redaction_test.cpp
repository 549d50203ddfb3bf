// Tests what may leave a machine: planted secrets never do, and redacting twice is redacting once.
#include "harness/bundle/redaction.hpp"

#include <gtest/gtest.h>

#include <random>

#include "harness/bundle/bundled_trial.hpp"
#include "harness/bundle/series_file.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

const PrivateNames kNames = {{"node7.example.org", "node7"}, {"alice"}};

json Redacted(const json& value, const json& form, const PrivateNames& names = kNames) {
  Redactions met;
  return Redact(value, form, names, "f", met);
}

TEST(Redaction, KeysInNoListStay) {
  Redactions met;
  const json trial = {{"seed", 1},
                      {"api_token", "x"},
                      {"argv", {"mpirun", "/users/alice/a"}},
                      {"config", {{"workers", 2}, {"password", "p"}}},
                      {"environment", {{"OMP_NUM_THREADS", "4"}, {"AWS_KEY", "k"}}},
                      {"failure", {{"kind", "comm"}, {"message", "m"}, {"log_tail", "l"}}}};
  EXPECT_EQ(Redact(trial, TrialForm(), kNames, "trial.json", met),
            (json{{"seed", 1},
                  {"config", {{"workers", 2}}},
                  {"environment", {{"OMP_NUM_THREADS", "4"}}},
                  {"failure", {{"kind", "comm"}}}}));
  for (const char* key : {"api_token", "argv", "config.password", "environment.AWS_KEY",
                          "failure.message", "failure.log_tail"})
    EXPECT_TRUE(met.stays.contains(std::string("trial.json: ") + key)) << key;
  EXPECT_EQ(met.leaves.at("trial.json: config.workers"), "number");
}

TEST(Redaction, WordsLoseFoldersNamesAndTokens) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/users/alice/x.so: no such file", "x.so: no such file"},
      {"file:///users/alice/x", "file:x"},
      {"see ~alice/notes and ../../home/bob/y", "see notes and y"},
      {"a/home/bob/z", "z"},
      {"TOKEN=ghp_16C7e42F292c6912E7710c838347Ae178B4a;", "TOKEN=SECRET;"},
      {"key AKIAIOSFODNN7EXAMPLE", "key SECRET"},
      {"zT8kQ2mX9vB4nL7cR1wY6pD3", "SECRET"},
      {"a/zT8kQ2mX9vB4nL7cR1wY6pD3", "SECRET"},
      {"on node7 and node7.example.org by alice, not alice2",
       "on HOST and HOST by USER, not alice2"},
      {"128 images/s", "128 images/s"},
      {"AMD EPYC 7742 64-Core Processor", "AMD EPYC 7742 64-Core Processor"},
      {"a line\nand /tmp/another", "a line and another"},
      {"g++ 12.2.0", "g++ 12.2.0"}};
  for (const auto& [said, leaves] : cases) EXPECT_EQ(Redacted(said, "words"), json(leaves)) << said;
}

TEST(Redaction, DataKeepsWhatNamesCells) {
  for (const char* name :
       {"sparse-allgather", "python:TopKWithThreshold@0123456789ab", "table:my_model@0123456789ab",
        "encoder.layer.23.output.LayerNorm.weight", "model/conv2d_12/BatchNorm_1234/beta",
        "2026-11-23T07:07:10.560Z", "3,8,12", "91a6104a6b18"})
    EXPECT_EQ(Redacted(name, "data"), json(name));
  EXPECT_EQ(Redacted("python:/users/alice/a.py:TopK", "data"), json("python:a.py:TopK"));
}

TEST(Redaction, ValuesOfAnotherKindStay) {
  EXPECT_TRUE(Redacted("secret", "number").is_null());
  EXPECT_TRUE(Redacted("no hash", "hash").is_null());
  EXPECT_TRUE(Redacted("/users/alice", "place").is_null());
  EXPECT_TRUE(Redacted("a/../b", "place").is_null());
  EXPECT_TRUE(Redacted(json{{"a", 1}}, "words").is_null());
}

TEST(Redaction, HostsAreNumberedAndStayTogether) {
  const json hosts = {"node7", "node9", "node7", "node9"};
  const json numbered = {"host0", "host1", "host0", "host1"};
  EXPECT_EQ(Redacted(hosts, "hosts"), numbered);
  EXPECT_EQ(Redacted(numbered, "hosts"), numbered);
}

// A value of any shape, with what attackers and clumsy programs put there.
json Draw(std::mt19937& draw, int depth) {
  static const std::vector<json> kLeaves = {1,
                                            0.1,
                                            true,
                                            nullptr,
                                            "word",
                                            "/users/alice/x",
                                            "~/y",
                                            "..",
                                            "../..",
                                            "...",
                                            "a//b///c",
                                            "~~",
                                            "/",
                                            "//",
                                            "node7",
                                            "alice",
                                            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
                                            "x=/a/b:/c/d",
                                            "\xc3\xa4\xc3\xb6",
                                            std::string(299, 'a') + "\xc3\xa4\xc3\xb6",
                                            std::string(400, 'Z'),
                                            "HOST",
                                            "a\tb",
                                            "host0",
                                            "12",
                                            "~/../~/..x"};
  static const std::vector<std::string> kKeys = {
      "config", "density", "method", "system",       "machine", "placement", "cpu_model",
      "quiet",  "why",     "a/b/c",  "/users/alice", "gpus",    "launch",    "id"};
  const auto pick = [&](std::size_t size) { return static_cast<std::size_t>(draw() % size); };
  if (depth == 0 || draw() % 3 == 0) return kLeaves[pick(kLeaves.size())];
  json value = draw() % 3 == 0 ? json::array() : json::object();
  for (int i = 0; i < 5; ++i) {
    json inner = Draw(draw, depth - 1);
    if (value.is_array()) {
      value.push_back(std::move(inner));
    } else {
      value[kKeys[pick(kKeys.size())]] = std::move(inner);
    }
  }
  return value;
}

TEST(Redaction, RedactingTwiceIsRedactingOnce) {
  std::mt19937 draw(7);
  const PrivateNames nobody;
  for (int i = 0; i < 200; ++i) {
    const json value = Draw(draw, 4);
    for (const json* form : {&TrialForm(), &ConfigForm(), &OutcomeForm(), &AnnotationForm()}) {
      const json once = Redacted(value, *form);
      ASSERT_EQ(Redacted(once, *form, nobody), once) << value;
      ASSERT_EQ(json::parse(WrittenJson(once)), once);
      for (const char* secret : {"/home", "ghp_"})
        ASSERT_EQ(once.dump().find(secret), std::string::npos) << once;
    }
    for (const char* how : {"data", "words"}) {
      const json once = Redacted(value, how);
      ASSERT_EQ(Redacted(once, how, nobody), once) << value;
    }
    for (const char* name : {"alice", "node7"})
      ASSERT_EQ(Redacted(value, "words").dump().find(name), std::string::npos) << value;
  }
}

TEST(Redaction, SeriesAreNumbersOfKnownRows) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "s.npy";
  NpyTable steps("every step");
  steps.AddColumn("step", "", std::vector<std::int64_t>{0, 1});
  steps.AddColumn("measured", "", std::vector<bool>{false, true});
  steps.AddColumn("loss", "nats", std::vector<double>{2, 1});
  steps.Write(file);
  const std::string good = ReadFile(file);
  EXPECT_EQ(WhatIsWrongWithSeries("steps.npy", good), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", good + "token"), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", good.substr(0, good.size() - 1)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", "token"), "");
  std::string header = good;
  header[good.find("   ")] = '#';  // within what fills the header up
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", header), "");
  NpyTable spans("the last step");
  spans.AddColumn("label", "", std::vector<std::string>{"conv"});
  spans.Write(file);
  EXPECT_EQ(WhatIsWrongWithSeries("spans.npy", ReadFile(file)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", ReadFile(file)), "");
}

}  // namespace
}  // namespace sparfuse::harness

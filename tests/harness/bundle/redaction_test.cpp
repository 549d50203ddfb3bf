// Tests what may leave a machine: planted secrets never do, and redacting twice is redacting once.
#include "harness/bundle/redaction.hpp"

#include <gtest/gtest.h>

#include <random>

#include "harness/bundle/bundled_trial.hpp"
#include "harness/bundle/series_file.hpp"
#include "harness/files/canonical.hpp"
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

TEST(Redaction, CitationsKeepAddressesOfTheWeb) {
  const json form = {{"source", "citation"}};
  for (const auto& [source, leaves] :
       {std::pair("Doe et al., table 2", "Doe et al., table 2"),
        {"see https://arxiv.org/abs/2005.13247, table 3",
         "see https://arxiv.org/abs/2005.13247, table 3"},
        {"https://alice:secret@example.org/a/b?token=x#c y", "https://example.org/a/b y"},
        {"https://example.org?next=/home", "https://example.org"},
        {"http://example.org/ghp_16C7e42F292c6912E7710c838347Ae178B4a", "SECRET"},
        {"/users/alice/notes/numbers.csv of node7", "numbers.csv of HOST"},
        {"https://a.org/x and /users/alice/y", "https://a.org/x and y"},
        {"https://a.org/x;https://me:pw@b.org/y", "https://a.org/x;https://b.org/y"},
        {"https://a.org;https://me:pw@b.org", "https://a.org;https://b.org"},
        {"HTTPS://me:pw@host/x, ftp://me:p,w@host/x", "HTTPS://host/x, ftp://host/x"},
        {"https://a.org/x?token=y;https://me:pw@b.org", "https://a.org/xhttps://b.org"},
        {"file:///users/alice/x", "file:x"},
        {"https://", "https://"}}) {
    const json redacted = Redacted({{"source", source}}, form);
    EXPECT_EQ(redacted["source"], leaves);
    EXPECT_EQ(Redacted(redacted, form, {}), redacted) << source;
  }
}

TEST(Redaction, DataKeepsWhatNamesCells) {
  for (const char* name :
       {"sparse-allgather", "python:TopKWithThreshold@0123456789ab", "table:my_model@0123456789ab",
        "encoder.layer.23.output.LayerNorm.weight", "model/conv2d_12/BatchNorm_1234/beta",
        "2026-11-23T07:07:10.560Z", "3,8,12", "91a6104a6b18"})
    EXPECT_EQ(Redacted(name, "data"), json(name));
  EXPECT_EQ(Redacted("python:/users/alice/a.py:TopK", "data"), json("python:a.py:TopK"));
}

TEST(Redaction, DataHasNoNamesEither) {
  EXPECT_EQ(Redacted("node7.example.org alice", "data"), json("HOST USER"));
  EXPECT_EQ(Redacted(json{{"note", {"on node7.", "alice"}}, {"node7", 1}}, "data"),
            (json{{"note", {"on HOST.", "USER"}}}));
  const json trial = Redacted(
      {{"config", {{"workload_options", {{"note", "node7.cluster.org alice"}}}, {"workers", 2}}}},
      TrialForm());
  EXPECT_EQ(trial["config"]["workload_options"]["note"], "HOST USER");
}

// Who is called as an optimizer is has the same configurations as all others.
TEST(Redaction, OptionsThatAreOneWordStay) {
  const PrivateNames names = {{"ring", "node7"}, {"adam"}};
  const json config = {{"recipe", {{"optimizer", "adam"}}}, {"method_options", {{"x", "ring"}}}};
  EXPECT_EQ(Redacted(config, ConfigForm(), names), config);
  EXPECT_EQ(Redacted("ring on node7 by adam", "option", names), json("HOST on HOST by USER"));
  EXPECT_EQ(Redacted("node7", "option", names), json("HOST"));
}

TEST(Redaction, NamesOfHostsGoWithTheirDomainsAndWithoutThem) {
  PrivateNames names;
  for (const char* host : {"node7.cluster.example.org", "10.0.0.12", "localhost", ""})
    names.AddHost(host);
  EXPECT_EQ(names.hosts,
            (std::set<std::string>{"node7.cluster.example.org", "node7", "10.0.0.12"}));
  for (const auto& [said, leaves] : {std::pair("node7 was rebooted", "HOST was rebooted"),
                                     {"on node7.", "on HOST."},
                                     {"node7.local, node7.cluster.example.org...", "HOST, HOST..."},
                                     {"node71 and my-node7", "node71 and my-node7"},
                                     {"10 GiB on 10.0.0.12", "10 GiB on HOST"}})
    EXPECT_EQ(Redacted(said, "words", names), json(leaves)) << said;
}

// A trial has the same bytes whoever lets it leave, which a list of the same number promises. Who
// changes what leaves, or how, raises kRedaction and freezes a bundle (frozen_test.cpp).
TEST(Redaction, TheListsHaveTheNumberOfTheirContent) {
  const json lists = {TrialForm(), ConfigForm(), OutcomeForm(), AnnotationForm()};
  EXPECT_EQ(kRedaction, 2);
  EXPECT_EQ(ContentHash(lists).substr(0, 16), "35de5635e5d66944")
      << "raise kRedaction where a version of the lists has left";
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
    for (const char* how : {"data", "option", "words"}) {
      const json once = Redacted(value, how);
      ASSERT_EQ(Redacted(once, how, nobody), once) << value;
    }
    for (const char* name : {"alice", "node7"}) {
      for (const char* how : {"data", "words"})
        ASSERT_EQ(Redacted(value, how).dump().find(name), std::string::npos) << value;
    }
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
  // As anybody may write one: 64 KiB of a header are read without a call a character.
  const auto with_header = [](const std::string& text) {
    std::string file("\x93NUMPY\1\0", 8);
    file += static_cast<char>(text.size() % 256);
    file += static_cast<char>(text.size() / 256);
    return file + text;
  };
  const std::string begin = "{'descr': [('a', '<f8'), ], 'fortran_order': False, 'shape': (";
  const std::string padding(65'000, ' ');
  EXPECT_EQ(WhatIsWrongWithSeries("steps.npy", with_header(begin + "0,), }" + padding + "\n")), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "0,), }" + padding)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "1,), }\n")), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "-1,), }\n")), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(begin + "99999999999999999999,), }\n")),
            "");
  std::string many = "{'descr': [";
  for (int i = 0; i < 1500; ++i) many += "('label', '<U4096'), ";
  EXPECT_NE(
      WhatIsWrongWithSeries("spans.npy", with_header(many + "], 'fortran_order': False, 'shape': "
                                                            "(750599937895,), }\n")),
      "");
  for (const char* wrong :
       {"", "{'descr': [", "{'descr': [('", "{'descr': [('a", "{'descr': [('a', '",
        "{'descr': [('a', '<f8'), ], 'fortran_order': False, 'shape': ("})
    EXPECT_NE(WhatIsWrongWithSeries("steps.npy", with_header(wrong)), "") << wrong;
  NpyTable spans("the last step");
  spans.AddColumn("label", "", std::vector<std::string>{"conv"});
  spans.Write(file);
  EXPECT_EQ(WhatIsWrongWithSeries("spans.npy", ReadFile(file)), "");
  EXPECT_NE(WhatIsWrongWithSeries("steps.npy", ReadFile(file)), "");
}

}  // namespace
}  // namespace sparfuse::harness

// Tests the removals of scrubbing from texts: planted secrets never stay, and scrubbing twice
// equals scrubbing once.
#include "harness/store/scrubber.hpp"

#include <gtest/gtest.h>

#include "harness/records/cell_config.hpp"
#include "harness/records/trial.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

const TextScrubber kScrubber({{"node7.example.org", "node7"}, {"alice"}});
constexpr Leaves kAllWays[] = {Leaves::kData,     Leaves::kOption, Leaves::kWords,
                               Leaves::kCitation, Leaves::kHash,   Leaves::kPlace};

std::string Scrubbed(const std::string& text, Leaves as) { return kScrubber.Scrubbed(text, as); }

TEST(Scrubber, WordsLoseFoldersNamesAndTokens) {
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
  for (const auto& [said, leaves] : cases)
    EXPECT_EQ(Scrubbed(said, Leaves::kWords), leaves) << said;
}

TEST(Scrubber, CitationsKeepAddressesOfTheWeb) {
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
    const std::string scrubbed = Scrubbed(source, Leaves::kCitation);
    EXPECT_EQ(scrubbed, leaves);
    EXPECT_EQ(TextScrubber().Scrubbed(scrubbed, Leaves::kCitation), scrubbed) << source;
  }
}

TEST(Scrubber, DataKeepsWhatNamesCells) {
  for (const char* name :
       {"sparse-allgather", "python:TopKWithThreshold@0123456789ab", "table:my_model@0123456789ab",
        "encoder.layer.23.output.LayerNorm.weight", "model/conv2d_12/BatchNorm_1234/beta",
        "2026-11-23T07:07:10.560Z", "3,8,12", "91a6104a6b18"})
    EXPECT_EQ(Scrubbed(name, Leaves::kData), name);
  EXPECT_EQ(Scrubbed("python:/users/alice/a.py:TopK", Leaves::kData), "python:a.py:TopK");
  EXPECT_EQ(Scrubbed("node7.example.org alice", Leaves::kData), "HOST USER");
}

// A user whose name is that of an optimizer has the same configurations as all others.
TEST(Scrubber, OptionsThatAreOneWordStay) {
  const TextScrubber names({{"ring", "node7"}, {"adam", "mpi"}});
  const json config = {{"recipe", {{"optimizer", "adam"}}},
                       {"method_options", {{"x", "ring"}}},
                       {"transport", "mpi"}};
  EXPECT_EQ(ScrubbedConfig(config, names), config);
  EXPECT_EQ(names.Scrubbed("ring on node7 by adam", Leaves::kOption), "HOST on HOST by USER");
  EXPECT_EQ(names.Scrubbed("node7", Leaves::kOption), "HOST");
}

TEST(Scrubber, ConfigurationsLoseKeysThatNoCellHas) {
  EXPECT_EQ(ScrubbedConfig({{"workers", 2}, {"api_token", "x"}}, kScrubber),
            (json{{"workers", 2}}));
  EXPECT_EQ(
      ScrubbedConfig({{"workload_options", {{"note", "on node7."}, {"node7", 1}}}}, kScrubber),
      (json{{"workload_options", {{"note", "on HOST."}, {"HOST", 1}}}}));
}

TEST(Scrubber, NamesOfHostsGoWithTheirDomainsAndWithoutThem) {
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
    EXPECT_EQ(TextScrubber(names).Scrubbed(said, Leaves::kWords), leaves) << said;
}

TEST(Scrubber, TextsThatAreNoHashOrNoPlaceGo) {
  EXPECT_EQ(Scrubbed("0a1b", Leaves::kHash), "0a1b");
  EXPECT_EQ(Scrubbed("no hash", Leaves::kHash), "");
  EXPECT_EQ(Scrubbed("e/p/wfbp-b0-1", Leaves::kPlace), "e/p/wfbp-b0-1");
  EXPECT_EQ(Scrubbed("/users/alice", Leaves::kPlace), "");
  EXPECT_EQ(Scrubbed("a/../b", Leaves::kPlace), "");
}

// Texts that attackers and careless programs write.
TEST(Scrubber, ScrubbingTwiceIsScrubbingOnce) {
  const std::vector<std::string> pieces = {"word",
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
  for (const std::string& first : pieces) {
    for (const std::string& second : pieces) {
      for (const char* between : {" ", "=", "/", "; "}) {
        const std::string text = first + between + second;
        for (const Leaves as : kAllWays) {
          const std::string once = Scrubbed(text, as);
          ASSERT_EQ(TextScrubber().Scrubbed(once, as), once) << text;
          if (as == Leaves::kPlace) continue;
          ASSERT_EQ(once.find("ghp_"), std::string::npos) << text;
          if (as != Leaves::kData && as != Leaves::kWords) continue;
          ASSERT_EQ(kScrubber.Scrubbed(once, as), once) << text;  // no name is left
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::harness

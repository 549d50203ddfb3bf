// Tests the allowed content of a system's file, and its contradictions.
#include "harness/systems/system_file.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

Node NodeOf(int cores = 8, std::optional<double> gbps = 100) {
  Node node;
  node.processor = "a \"quoted\" one";
  node.cores = cores;
  node.memory_gib = 64;
  node.cards = {{"A100", 80, 8}};
  node.card_links = {{"NV12", 28}};
  node.interfaces = {{{"eth0", "Ethernet", gbps}}};
  return node;
}

SystemDescription Parse(const std::string& text) {
  return SystemDescription(TomlFile::Parse(text, "s.toml"));
}

// `text` with the requested values filled in, in the order of the file.
std::string Filled(std::string text, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    const std::string open = std::string(" = \"") + kChangeMe + "\"";
    const std::size_t at = text.find(open);
    EXPECT_NE(at, std::string::npos);
    text.replace(at, open.size(), " = " + value);
  }
  return text;
}

// A file of four equal nodes.
std::string Whole(const Node& node = NodeOf()) {
  return Filled(NewSystemText("s", node), {"'lab'", "'Ethernet'", "100", "'one switch'", "4"});
}

std::string ErrorOf(const std::string& text) {
  return testing::ErrorOf([&] { Parse(text); });
}

TEST(SystemDescription, ReadsBackWhatInitWrites) {
  const SystemDescription system = Parse(NewSystemText("s", NodeOf()));
  EXPECT_EQ(system.Find(NodeOf()), 0);
  EXPECT_EQ(system.Find(NodeOf(16)), -1);
  EXPECT_TRUE(system.ContradictionsWith(NodeOf()).empty());
  Node bare = NodeOf(2);
  bare.cards.clear();
  bare.card_links.clear();
  bare.interfaces->clear();
  EXPECT_EQ(Parse(NewSystemText("s", bare)).Find(bare), 0);
}

TEST(SystemDescription, AsksForEveryValueThatIsStillOpenAndNothingElse) {
  const auto problems = Parse(NewSystemText("s", NodeOf())).Contradictions();
  std::vector<std::string> keys;
  for (const SystemProblem& problem : problems) {
    keys.push_back(problem.key);
    EXPECT_EQ(problem.value, kChangeMe);
  }
  const std::vector<std::string> expected = {"title", "network.kind", "network.gbps",
                                             "network.topology", "node[0].count"};
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(TextOf(problems.back()),
            "s.toml:12: node[0].count = \"CHANGEME\": expected number of nodes that equal this "
            "one");
  EXPECT_TRUE(Parse(Whole()).Contradictions().empty());
}

TEST(SystemDescription, KeepsUnlikeNodesApart) {
  const std::string text = Whole() + Filled(NodeText(NodeOf(16)), {"2"});
  const SystemDescription system = Parse(text);
  EXPECT_TRUE(system.Contradictions().empty());
  EXPECT_EQ(system.nodes().size(), 2U);
  EXPECT_EQ(system.Find(NodeOf(16)), 1);
  EXPECT_EQ(system.Summary(), "6 node(s) of 2 kinds (4 + 2), 48 card(s)");
}

TEST(SystemDescription, RefusesEqualNodesInTwoEntries) {
  const auto problems = Parse(Whole() + Filled(NodeText(NodeOf()), {"2"})).Contradictions();
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems.front().key, "node[1].count");
}

TEST(SystemDescription, NamesWhatContradictsTheNodeAtHandInTheNearestEntry) {
  const Node slow = NodeOf(16, 50);
  const SystemDescription system = Parse(Whole() + Filled(NodeText(NodeOf(16)), {"2"}));
  const auto problems = system.ContradictionsWith(slow);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems.front().key, "node[1].interface[0].gbps");
  EXPECT_EQ(problems.front().value, 100);
  EXPECT_EQ(problems.front().expected, "50, as detected here");
}

TEST(SystemDescription, HoldsTheNetworkToTheNodes) {
  const auto keys_of = [](const std::vector<std::string>& values, const Node& node) {
    std::vector<std::string> keys;
    for (const auto& problem : Parse(Filled(NewSystemText("s", node), values)).Contradictions())
      keys.push_back(problem.key);
    return keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of({"'x'", "'Ethernet'", "200", "'y'", "4"}, NodeOf()), Keys{"network.gbps"});
  EXPECT_EQ(keys_of({"'x'", "'Ethernet'", "200", "'y'", "4"}, NodeOf(8, {})), Keys{});
  EXPECT_EQ(keys_of({"'x'", "'Ethernet'", "100", "'y'", "1"}, NodeOf()), Keys{"network.kind"});
  std::string alone = Filled(NewSystemText("s", NodeOf()), {"'x'", "'none'"});
  for (const char* key : {"gbps = \"CHANGEME\"", "topology"}) {
    const std::size_t line = alone.find(key);
    alone.erase(line, alone.find('\n', line) - line);
  }
  EXPECT_TRUE(Parse(Filled(alone, {"1"})).Contradictions().empty());
  EXPECT_EQ(Parse(Filled(alone, {"3"})).Contradictions().at(0).key, "network.kind");
}

TEST(SystemDescription, RefusesWhatIsNoDescription) {
  const std::string whole = Whole();
  const auto with = [&](const std::string& old, const std::string& now) {
    return testing::Replaced(whole, old, now);
  };
  const std::map<std::string, std::string> cases = {
      {with("cores = 8", "cores = 0"), "cores = 0: expected an integer from 1 to 1000000, or"},
      {with("cores = 8", "cores = \"CHANGEME\""), "cores = \"CHANGEME\": expected"},
      {with("cores = 8", "cors = 8"), "unknown key \"cors\""},
      {with("gbps = 100\n", "gbps = -1\n"), "gbps = -1: expected"},
      {with("processor", "[[node.extra]]\nprocessor"), "unknown key"},
      {with("pairs = 28", ""), "the key \"pairs\" is missing"},
      {with("[network]", "[net]"), "unknown key \"net\""},
      {"title = 'x'\n[network]\nkind = 'none'\n", "there is no [[node]]"},
      {with("[[node]]", "[node]"), "node"}};
  for (const auto& [text, expected] : cases) {
    const std::string error = ErrorOf(text);
    EXPECT_SAYS(error, "s.toml:");
    EXPECT_SAYS(error, expected);
  }
}

TEST(SystemDescription, IsTheSameUnderAnotherNameAndInAnotherOrder) {
  const std::string first = Filled(NodeText(NodeOf()), {"4"});
  const std::string second = Filled(NodeText(NodeOf(16)), {"2"});
  const std::string head = "[network]\nkind = 'Ethernet'\ngbps = 100\ntopology = 'one switch'\n";
  const std::string hash = Parse("title = 'a'\n" + head + first + second).Hash();
  std::string renamed = "title = 'b'\n" + head + second + first;
  renamed.replace(renamed.find("eth0"), 4, "ens3");
  EXPECT_EQ(Parse(renamed).Hash(), hash);
  for (const char* change : {"A100", "NV12"}) {  // another card, another link
    std::string other = renamed;
    EXPECT_NE(Parse(other.replace(other.find(change), 4, "X200")).Hash(), hash) << change;
  }
  std::string half = renamed;
  half.replace(half.rfind("gbps = 100"), 10, "gbps = 50");
  EXPECT_NE(Parse(half).Hash(), hash);
}

TEST(SystemFile, TakesNamesThatStayInTheFolder) {
  EXPECT_EQ(SystemFile("f", "a-1"), "f/a-1.toml");
  for (const char* name : {"", ".", "..", "a/b", ".hidden", "a b"})
    EXPECT_THROW(SystemFile("f", name), Error) << name;
}

}  // namespace
}  // namespace sparfuse::harness

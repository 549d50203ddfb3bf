// Tests the nodes in trials' records and the system of these nodes: JSON and hash stay the same.
#include "harness/records/node.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

const json kMachineOfANode = json::parse(
    R"({"cores":2,"cpu_model":"AMD EPYC","gpus":[],"kernel":"Linux 6.1.0","memory_gib":24})");
const json kNode = json::parse(
    R"({"cores":192,"cpu_model":"AMD EPYC 9654","gpus":["NVIDIA H100","NVIDIA H100"],
        "memory_gib":755,"network":[{"gbps":1.0,"kind":"Ethernet"},
                                    {"gbps":"unknown","kind":"virtual"}]})");

// Frozen: a change here assigns every stored trial to another system.
void ExpectSame(const json& stored, const char* hash) {
  const System system = SystemOf(stored);
  EXPECT_EQ(ToJson(system), stored);
  EXPECT_EQ(HashOf(system), hash);
  EXPECT_EQ(SystemOf(ToJson(system)), system);
}

TEST(System, OfThisMachineIsWhatItWas) {
  ExpectSame(kMachineOfANode, "e5f7b54554d3337ca476711435c1d18a8064a56c82f10d286a0060df8e219bbf");
}

TEST(System, OfAProfileIsWhatItWas) {
  ExpectSame({{"cluster", "this-machine"},
              {"machine", kMachineOfANode},
              {"profile_hash", "1770caca39902a184397dafc2dc0b8a889d6df5fd49cb814c901062409767c70"}},
             "b11695a11ac6aa63b47f4e76fcd14a863248759c378bedaf7cf2fd92d7dd5cfd");
}

TEST(System, OfSeveralHostsIsWhatItWas) {
  ExpectSame({{"nodes", {kNode}}},
             "b6f73c3832a16badb9f7385b606181bde3747c35dfe60a3f1ee4cde6fe53983d");
}

TEST(System, OfOthersResultsIsWhatItWas) {
  ExpectSame({{"kind", "imported"}, {"name", "their cluster"}, {"source", "Table 2"}},
             "5629a2a645a92f08cde6b2abf243501e18bfdebeda6d9f57a82576ccb7b3ca16");
}

TEST(System, OfAProfileThatSeveralHostsMeasuredComesBack) {
  System system = SystemOf({{"nodes", {kNode}}});
  system.cluster = "this-machine";
  const json stored = ToJson(system);
  EXPECT_EQ(stored.at("machine").at("nodes"), json::array({kNode}));
  EXPECT_EQ(SystemOf(stored), system);
}

TEST(System, IsNullWhereItIsNotKnown) {
  EXPECT_TRUE(ToJson(System()).is_null());
  EXPECT_FALSE(SystemOf(nullptr).is_known());
  EXPECT_THROW(SystemOf("a name"), Error);
}

TEST(Node, HasAnUnknownSpeedWhereNobodyToldOne) {
  const Node node = NodeOf(kNode);
  EXPECT_EQ(node.CardCount(), 2U);
  EXPECT_EQ(node.interfaces->at(0).gbps, 1);
  EXPECT_FALSE(node.interfaces->at(1).gbps);
  EXPECT_EQ(NetworkLine(node), "Ethernet 1 Gbit/s, virtual");
}

TEST(DescribedNode, HasAllPartsAndNamesWhatIsUnknown) {
  Node node;
  node.cards = {{"", {}, 1}};
  EXPECT_EQ(ToJson(PartsOf(node)),
            json::parse(R"({"processor": "unknown", "cores": "unknown", "memory_gib": "unknown",
      "card": [{"model": "unknown", "memory_gib": "unknown", "count": 1}],
      "card_link": [], "interface": []})"));
}

TEST(SystemOfNodes, IsTheSameForAnyNumberInAnyOrderAndUnlikeNodesStayApart) {
  Node a, b;
  a.processor = "a";
  b.processor = "b";
  const std::vector<Node> counted = CountedNodes(std::vector{b, a, b});
  ASSERT_EQ(counted.size(), 2U);
  EXPECT_EQ(counted[0].processor, "b");
  EXPECT_EQ(counted[0].count, 2);
  EXPECT_EQ(counted[1].count, 1);
  const System both = SystemOfNodes(std::vector{a, b});
  EXPECT_EQ(both.nodes, (std::vector{a, b}));
  EXPECT_EQ(SystemOfNodes(counted), both);
  EXPECT_NE(SystemOfNodes(std::vector{a, a}), both);
  EXPECT_EQ(SystemOfNodes(std::vector{a, a}), SystemOfNodes(std::vector{a}));
}

}  // namespace
}  // namespace sparfuse::harness

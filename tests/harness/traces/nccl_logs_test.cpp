// Tests the reading of NCCL's own logs: Inspector's records and NCCL_DEBUG=INFO.
#include "harness/traces/nccl_logs.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/files/durable_file.hpp"
#include "tests/harness/traces/cases.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using testing::ErrorOf;
using testing::Replaced;

class InspectorFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  std::string Error(const std::string& text) {
    std::ofstream(file_, std::ios::binary) << text;
    return ErrorOf([&] { ReadNcclInspector({file_.string()}); });
  }
  const std::string text_ = ReadFile(Case("example-node0-pid4000.log"));
  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("inspector_" + std::to_string(::getpid()));
};

// 8 ranks on 2 nodes: the minimum over ranks for each call, then for each size.
TEST_F(InspectorFile, GivesTheShortestOfEachCallOverRanks) {
  const Inspected inspected =
      ReadNcclInspector({Case("example-node0-pid4000.log"), Case("example-node1-pid4005.log")});
  ASSERT_EQ(inspected.collectives.size(), 1U);
  const InspectedCollective& made = inspected.collectives[0];
  EXPECT_EQ(made.log.ranks, 8);
  EXPECT_EQ(made.log.nodes, 2);
  ASSERT_EQ(made.sizes.size(), 3U);
  EXPECT_EQ(made.sizes[0].bytes, 1024);
  EXPECT_EQ(made.sizes[0].least_us, 31);
  EXPECT_EQ(made.sizes[1].bytes, 4 << 20);
  EXPECT_EQ(made.sizes[1].least_us, 405);
  EXPECT_EQ(made.sizes[2].bytes, 25 << 20);
  EXPECT_EQ(made.sizes[2].least_us, 1570);
  EXPECT_NEAR(made.log.BusBandwidth(made.log.samples[1]) / 1e9, 18.124, 0.001);
  EXPECT_NEAR(made.log.BusBandwidth(made.log.samples[2]) / 1e9, 29.220, 0.001);
  EXPECT_GE(made.sizes[1].load(), 1);
  EXPECT_EQ(made.log.kind, "measured");
}

TEST_F(InspectorFile, ThatContradictsItselfIsRefused) {
  EXPECT_SAYS(Error(Replaced(text_, "\"v4.0\"", "\"v4.3\"")),
              ":1: inspector_output_format_version = \"v4.3\": expected one of v4.0, v4.1, v4.2");
  EXPECT_SAYS(Error(Replaced(text_, "8.065969", "8.165969")), ":1: coll_algobw_gbs = 8.16597: ");
  EXPECT_SAYS(Error(Replaced(text_, "14.115446", "16.1")), ":1: coll_busbw_gbs = 16.1: ");
  EXPECT_SAYS(Error(Replaced(text_, "\"coll_exec_time_us\": 520", "\"coll_exec_time_us\": -1")),
              ":1: coll_exec_time_us = -1: expected a number of at least 0");
  EXPECT_SAYS(Error(text_.substr(0, 300)), ":1: no JSON object");
  EXPECT_SAYS(Error(Replaced(text_, "\"header\"", "\"head\"")),
              ":1: the key \"header\" is missing");
}

TEST(NcclInfo, SaysWhatTheClusterElseDeclares) {
  const NcclInfo info = ReadNcclInfo(ReadFile(Case("nccl-info.log")), "nccl-info.log");
  EXPECT_EQ(info.version, "2.27.5");
  EXPECT_EQ(info.ranks, 8);
  EXPECT_EQ(info.nodes, 2);
  EXPECT_EQ(info.local_ranks, 4);
  EXPECT_EQ(info.channels, 16);
  EXPECT_EQ(info.nvls_channels, 0);
  EXPECT_EQ(info.ways, (std::vector<std::string>{"P2P/CUMEM/read", "NET/IB/GDRDMA"}));
  ASSERT_EQ(info.chosen.size(), 2U);
  EXPECT_EQ(info.chosen[0].algorithm, "RING");
  EXPECT_EQ(info.chosen[0].protocol, "SIMPLE");
  EXPECT_EQ(info.chosen[0].bytes, 26'214'400);
  EXPECT_EQ(info.chosen[1].algorithm, "TREE");
  EXPECT_EQ(info.sizes, (std::vector<double>{26'214'400, 1024}));

  DeclaredCluster cluster;
  cluster.nodes = 2;
  cluster.ranks_per_node = 4;
  const NcclInfoOnCluster said = CompareNcclInfo(info, cluster);
  ASSERT_EQ(said.lines.size(), 2U);
  EXPECT_EQ(said.lines[0], "all_reduce = \"nccl-2.20\"  # NCCL 2.27.5");
  EXPECT_EQ(said.lines[1], "channels = 16  # of [nccl]");
  cluster.ranks_per_node = 8;
  EXPECT_SAYS(CompareNcclInfo(info, cluster).notes[0], "4 ranks a node, and ranks_per_node is 8");
}

TEST(NcclInfo, OfOlderFormsAndLabelledLinesIsRead) {
  const NcclInfo info = ReadNcclInfo(
      "[0] h:1:2 [0] NCCL INFO NCCL version 2.10.3+cuda11.3\n"
      "[1] h:3:4 [7] NCCL INFO comm 0x7f rank 15 nranks 16 cudaDev 7 busId e7000 - Init COMPLETE\n"
      "[1] h:3:4 [7] NCCL INFO Channel 00 : 1[0] -> 2[0] via NET/Socket/0\n"
      "[1] h:3:4 [7] NCCL INFO AllReduce: 1024 Bytes -> Algo 1 proto 2 time 33.5\n",
      "old.log");
  ASSERT_EQ(info.chosen.size(), 1U);
  EXPECT_EQ(info.chosen[0].algorithm, "RING");
  EXPECT_EQ(info.chosen[0].protocol, "SIMPLE");
  EXPECT_EQ(info.version, "2.10.3");
  EXPECT_EQ(info.ranks, 16);
  EXPECT_EQ(info.nodes, 0);
  EXPECT_EQ(info.ways, std::vector<std::string>{"NET/Socket"});
  EXPECT_SAYS(CompareNcclInfo(info, DeclaredCluster{}).lines[0], "nccl-2.8");
  EXPECT_SAYS(ErrorOf([] { ReadNcclInfo("hello\n", "a.log"); }), "a.log: no line with \"NCCL INFO");
}

}  // namespace
}  // namespace sparfuse::harness

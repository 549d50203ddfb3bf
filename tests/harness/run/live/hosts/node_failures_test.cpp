// Tests which node is blamed for a failed launch, and when it gets no more ranks.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/files/durable_file.hpp"
#include "harness/run/live/live_launches.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ExpectIn;
using Words = std::vector<std::string>;

const Words kNodes = {"n1", "n2", "n12"};
TrialLaunch Placed() {
  TrialLaunch launch;
  launch.binding.emplace().hosts = {"n1", "n1", "n2.site.org", "n2.site.org"};
  return launch;
}

Failure Failed(const char* kind, const char* message, std::optional<int> rank = {},
               std::optional<int> signal = {}) {
  return {kind, rank, signal, message, ""};
}

TEST(NodeToBlame, IsThatOfTheRankThatIsGone) {
  EXPECT_EQ(
      NodeToBlame(kNodes, Placed(), Failed("comm", "rank 3 ended by signal 9", 3, 9), "").host,
      "n2");
  // Another rank reports it.
  const Failure silent = Failed("timeout", "rank 0: rank 2 does not answer", 0);
  EXPECT_EQ(NodeToBlame(kNodes, Placed(), silent, "").host, "n2");
  EXPECT_EQ(NodeToBlame({"n1"}, Placed(), silent, "").host, "");
}

TEST(NodeToBlame, IsTheOneThatTheLauncherNames) {
  const Failure start = Failed("timeout", "ranks did not meet within 140 s of the launch");
  const auto blamed = [&](const char* log) {
    return NodeToBlame(kNodes, TrialLaunch(), start, log).host;
  };
  EXPECT_EQ(blamed("srun: error: Node failure on n2\nsrun: Job step aborted\n"), "n2");
  EXPECT_EQ(blamed("slurmstepd-n12: error: execve(): worker: No such file\n"), "n12");
  EXPECT_EQ(blamed("ssh: connect to host n1 port 22: No route to host\n"), "n1");
  EXPECT_EQ(blamed("error: n1 lost\nerror: n2 lost\n"), "");  // it is unknown which failed first
  EXPECT_EQ(NodeToBlame(kNodes, TrialLaunch(), start, "one\nerror: n1 lost\nall over\n").why,
            "error: n1 lost");
  EXPECT_EQ(blamed("placed on n1\nan error elsewhere\n"), "");
}

TEST(NodeToBlame, IsNoneForWhatARankFoundWrongItself) {
  for (const char* kind : {"numeric", "data", "out_of_memory", "unsupported", "config"}) {
    EXPECT_EQ(NodeToBlame(kNodes, Placed(), Failed(kind, "rank 3: a NaN", 3), "error on n2\n").host,
              "");
  }
}

TEST(NodeFailures, TheSecondLeavesItOutWhereOthersAreLeft) {
  const LaunchMethod srun{.kind = LaunchMethod::Kind::kSrun};
  NodeFailures nodes(srun, kNodes);
  EXPECT_EQ(nodes.Count("n2", 2, "gone"), "");
  EXPECT_TRUE(nodes.Method("", 2).left_out.empty());
  ExpectIn("2 launches failed on n2 (the last: gone again): it is left out",
           nodes.Count("n2", 2, "gone again"));
  EXPECT_EQ(nodes.Method("", 2).left_out, Words{"n2"});
  EXPECT_EQ(nodes.NodesFor(2), (Words{"n1", "n12"}));
  EXPECT_TRUE(nodes.Method("", 3).left_out.empty());  // the launch needs all nodes
  EXPECT_EQ(nodes.NodesFor(3), kNodes);
  EXPECT_EQ(nodes.Count("n1", 2, "gone"), "");
  ExpectIn("no other node can take its place", nodes.Count("n1", 2, "gone"));
  EXPECT_EQ(nodes.left_out(), Words{"n2"});
  EXPECT_NE(nodes.Count("n1", 1, "gone"), "");  // in a smaller launch
  EXPECT_EQ(nodes.left_out(), (Words{"n2", "n1"}));
}

TEST(NodeFailures, WhatFailedOnANodeThatIsLeftOutIsRunAgainOnce) {
  const LaunchMethod srun{.kind = LaunchMethod::Kind::kSrun};
  NodeFailures nodes(srun, kNodes);
  const LaunchFailure failed{"", Failed("comm", "rank 3 ended by signal 9", 3, 9), {{}, {}}};
  TrialLaunch launch = Placed();
  EXPECT_EQ(nodes.Judge(failed, launch), "");
  EXPECT_EQ(launch.failed_on, "n2");
  EXPECT_TRUE(nodes.TakeFailed().empty());
  ExpectIn("left out", nodes.Judge(failed, launch));
  EXPECT_EQ(nodes.TakeFailed().size(), 4U);
  EXPECT_TRUE(nodes.TakeFailed().empty());
  TrialLaunch well = Placed();
  EXPECT_EQ(nodes.Judge({"", {}, {}}, well), "");
  EXPECT_EQ(well.left_out, Words{"n2"});
  EXPECT_EQ(well.failed_on, "");
}

TEST(NodeFailures, AHostfileIsWrittenWithoutThem) {
  const TemporaryFolder folder;
  LaunchMethod mpirun{.kind = LaunchMethod::Kind::kMpirun, .hostfile = folder.path() / "hosts"};
  std::ofstream(mpirun.hostfile) << "# ours\nn1 slots=2\nn2 slots=2 max_slots=4\nn12 slots=2\n";
  EXPECT_EQ(ChoosableNodes(mpirun), kNodes);
  NodeFailures nodes(mpirun, ChoosableNodes(mpirun));
  const auto file = folder.path() / "left";
  mpirun.mpirun_hostfile = folder.path() / "written";
  EXPECT_EQ(nodes.Method(file, 1).hostfile, mpirun.hostfile);
  EXPECT_EQ(nodes.Method(file, 1).mpirun_hostfile, mpirun.mpirun_hostfile);
  for (int i = 0; i < 2; ++i) nodes.Count("n1", 1, "gone");
  EXPECT_EQ(nodes.Method(file, 1).hostfile, file);
  EXPECT_EQ(nodes.Method(file, 1).mpirun_hostfile, "");
  // Hosts are read without comments: a launcher does not need them.
  EXPECT_EQ(ReadFile(file), "n2 slots=2 max_slots=4\nn12 slots=2\n");
  EXPECT_TRUE(ChoosableNodes(LaunchMethod{.kind = LaunchMethod::Kind::kMpirun}).empty());
}

}  // namespace
}  // namespace sparfuse::harness

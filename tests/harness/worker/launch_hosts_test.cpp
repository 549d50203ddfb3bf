// Tests the ranks' records of their hosts and clocks in a launch, and the turns of trials.
#include <gtest/gtest.h>

#include "harness/machine/system.hpp"
#include "harness/run/live/outcome.hpp"
#include "harness/worker/hosts/launch_record.hpp"
#include "harness/worker/launch.hpp"
#include "tests/harness/worker/worker_ranks.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

TEST(RankHosts, AreNumberedInTheOrderOfTheirFirstRanks) {
  const RankHosts hosts({"b", "a", "b", "c"});
  EXPECT_EQ(hosts.names, (Words{"b", "a", "c"}));
  EXPECT_EQ(hosts.host_of, (std::vector<std::size_t>{0, 1, 0, 2}));
  EXPECT_EQ(hosts.ranks_of, (std::vector<std::vector<int>>{{0, 2}, {1}, {3}}));
  EXPECT_TRUE(hosts.several());
  EXPECT_TRUE(hosts.speaks(1));
  EXPECT_FALSE(hosts.speaks(2));
}

class LaunchedRanks : public testing::WorkerRanks {};

// Ranks of one kernel share a clock: no clocks are compared, and lines change no time stamp.
TEST_F(LaunchedRanks, OnOneHostHaveOneClock) {
  OnRanks(3, [](const Rank& rank) {
    const RankHosts hosts = FindHosts(rank);
    HostClocks clocks(rank, hosts);
    clocks.Read(rank);
    EXPECT_FALSE(clocks.Describe(hosts));
    const auto lines = clocks.by_rank();
    ASSERT_EQ(lines.size(), 3U);
    for (const ClockLine& line : lines) EXPECT_EQ(line.OnRankZero(12.5), 12.5);
  });
}

// The test knows hosts by name alone: even with two names, the clock would be the same.
TEST_F(LaunchedRanks, RecordWhatOfTheirHostTheyUse) {
  OnRanks(2, [&](const Rank& rank) {
    LaunchRecord record(rank);
    if (rank.rank() == 0) {  // it exists before the first step
      EXPECT_TRUE(fs::exists(folder_.path() / kHostRecord));
    }
    record.Finish();
  });
  const LaunchHosts hosts = TakeHostRecord(folder_.path());
  ASSERT_TRUE(hosts.binding && hosts.network);
  EXPECT_EQ(hosts.binding->hosts, (Words{HostName(), HostName()}));
  EXPECT_EQ(hosts.binding->card, (Words{"", ""}));
  EXPECT_EQ(hosts.binding->cores[0], hosts.binding->cores[1]);
  EXPECT_EQ(hosts.network->hosts, Words{HostName()});
  EXPECT_EQ(hosts.network->others, std::vector<Words>{{}});
  EXPECT_FALSE(hosts.clocks);
  ASSERT_EQ(hosts.nodes.size(), 1U);
  EXPECT_EQ(hosts.nodes[0].count, 1);
  EXPECT_EQ(hosts.nodes[0].processor, DescribeMachine().processor);
  EXPECT_EQ(hosts.nodes[0].kernel, "");
}

TEST_F(LaunchedRanks, TheFileOfTurnsLiesInTheFolderOfWhoseTurnItIs) {
  const Words names = {"a", "b"};
  std::vector<fs::path> folders;
  for (const std::string& name : names) {
    folders.push_back(folder_.path() / name);
    fs::create_directory(folders.back());
  }
  OnRanks(2, [&](const Rank& rank) {
    Turns turns(folders);
    EXPECT_EQ(turns.Blamed(), folders);  // it was no trial's turn yet
    for (const std::size_t i : {1U, 0U, 0U}) {
      turns.Give(rank, i);
      EXPECT_EQ(turns.Blamed(), std::vector{folders[i]});
      if (rank.rank() == 0) {
        EXPECT_TRUE(fs::exists(folders[i] / kTurnFile));
        EXPECT_FALSE(fs::exists(folders[1 - i] / kTurnFile));
      }
    }
    EXPECT_GE(turns.Seconds(0), 0);
    const double before = turns.Seconds(1);
    EXPECT_EQ(turns.Seconds(1), before);  // its turn has ended
  });
}

}  // namespace
}  // namespace sparfuse::harness

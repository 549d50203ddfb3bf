// Tests the links that the ranks of a host share: the times of messages on them, and that they
// outlive killed processes.
#include "core/transport/shaped/host_links.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/transport/threads.hpp"
#include "tests/support/run_ranks.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::testing {
namespace {

// The links of each rank, as that rank has mapped them; ranks are threads.
std::vector<std::unique_ptr<HostLinks>> LinksOf(int ranks, int ranks_per_node,
                                                const NetworkShape& shape) {
  auto worlds = MakeThreadsWorld(ranks, ranks_per_node);
  std::vector<std::future<std::unique_ptr<HostLinks>>> shared;
  for (auto& world : worlds) {
    shared.push_back(std::async(std::launch::async, [&world, &shape] {
      return std::make_unique<HostLinks>(*world, shape, kDeadline);
    }));
  }
  std::vector<std::unique_ptr<HostLinks>> links;
  for (auto& each : shared) links.push_back(each.get());
  return links;
}

// So slow that messages sent together in a test overlap, however busy the machine is. A megabyte
// takes a hundred seconds between nodes and ten within them.
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kHundred = 100 * kSecond, kTen = 10 * kSecond;
constexpr std::int64_t kAlpha = 2 * kSecond, kAlphaWithin = 1 * kSecond;
const NetworkShape kSlow{LinkShape{80e-6, 2}, LinkShape{800e-6, 1}};
constexpr std::size_t kMega = 1'000'000;

TEST(HostLinks, RanksOfANodeShareItsCardInEachDirection) {
  const auto links = LinksOf(4, 2, kSlow);
  const auto first = links[0]->Send(0, 2, kMega);
  const auto second = links[1]->Send(1, 3, kMega);
  EXPECT_EQ(first.left, first.departure + kHundred);
  EXPECT_EQ(second.departure, first.left);
  EXPECT_EQ(links[2]->EndOf(0, 2, first.id), first.departure + kAlpha + kHundred);
  EXPECT_EQ(links[3]->EndOf(1, 3, second.id), first.departure + kAlpha + 2 * kHundred);
  // The other direction is free.
  const auto back = links[3]->Send(3, 0, kMega);
  EXPECT_LT(back.departure, first.left);
  EXPECT_EQ(links[0]->EndOf(3, 0, back.id), back.departure + kAlpha + kHundred);
}

TEST(HostLinks, SendersOfSeveralNodesMeetAtTheReceiversCard) {
  const auto links = LinksOf(6, 2, kSlow);
  const auto first = links[0]->Send(0, 4, kMega);
  const auto second = links[2]->Send(2, 5, kMega);
  const std::int64_t end = first.departure + kAlpha + kHundred;
  EXPECT_LT(second.departure, first.left);  // from another card
  EXPECT_EQ(links[4]->EndOf(0, 4, first.id), end);
  EXPECT_EQ(links[5]->EndOf(2, 5, second.id), end + kHundred);
}

TEST(HostLinks, LinksWithinNodesAreTheRanksOwnBesideTheCard) {
  const auto links = LinksOf(4, 2, kSlow);
  const auto between = links[0]->Send(0, 2, kMega);
  const auto within = links[0]->Send(0, 1, kMega);
  const auto back = links[1]->Send(1, 0, kMega);
  for (const auto& sent : {within, back}) {
    EXPECT_LT(sent.departure, between.left);
    EXPECT_EQ(sent.left, sent.departure + kTen);
  }
  EXPECT_EQ(links[1]->EndOf(0, 1, within.id), within.departure + kAlphaWithin + kTen);
  EXPECT_EQ(links[0]->EndOf(1, 0, back.id), back.departure + kAlphaWithin + kTen);
  EXPECT_EQ(links[0]->Send(0, 1, kMega).departure, within.left);  // after the message before
}

TEST(HostLinks, OneNodeHasNoUseForItsCardAndOneRankANodeNoneForLinksWithin) {
  const auto node = LinksOf(3, 4, kSlow);
  for (const int to : {1, 2}) {
    const auto sent = node[0]->Send(0, to, kMega);
    EXPECT_EQ(sent.left, sent.departure + kTen);
  }
  for (const NetworkShape& shape : {kSlow, NetworkShape{kSlow.between}}) {
    const auto links = LinksOf(2, 1, shape);
    const auto sent = links[0]->Send(0, 1, kMega);
    EXPECT_EQ(sent.left, sent.departure + kHundred);
    EXPECT_EQ(links[1]->EndOf(0, 1, sent.id), sent.left + kAlpha);
  }
}

// Five ranks on nodes of two: the last rank has its node's card to itself.
TEST(HostLinks, TheLastNodeMayHaveFewerRanks) {
  const auto links = LinksOf(5, 2, kSlow);
  const auto first = links[0]->Send(0, 4, kMega);
  const auto second = links[1]->Send(1, 4, kMega);
  const auto third = links[2]->Send(2, 4, kMega);
  EXPECT_EQ(second.departure, first.left);
  EXPECT_LT(third.departure, first.left);
  const std::int64_t end = first.departure + kAlpha + kHundred;
  EXPECT_EQ(links[4]->EndOf(0, 4, first.id), end);
  EXPECT_EQ(links[4]->EndOf(2, 4, third.id), end + kHundred);
  EXPECT_EQ(links[4]->EndOf(1, 4, second.id), end + 2 * kHundred);
  const auto back = links[4]->Send(4, 3, kMega);
  EXPECT_LT(back.departure, first.left);
  EXPECT_EQ(links[3]->EndOf(4, 3, back.id), back.departure + kAlpha + kHundred);
  const auto within = links[2]->Send(2, 3, kMega);
  EXPECT_EQ(links[3]->EndOf(2, 3, within.id), within.departure + kAlphaWithin + kTen);
}

// The child sends as fast as it can, so that it is often killed while it holds the lock.
TEST(HostLinks, OutliveAProcessThatIsKilledWhileItSends) {
  if (kThreadSanitized) {
    GTEST_SKIP()
        << "the thread sanitizer does not know that a timed lock can pass on from the dead";
  }
  const auto world = MakeThreadsWorld(1, 1);
  HostLinks links(*world[0], {LinkShape{1000.0, 1e-6}}, std::chrono::milliseconds(2000));
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) (void)links.Send(0, 0, 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + 37 * i));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const HostLinks::Sent sent = links.Send(0, 0, 1000);
    EXPECT_EQ(sent.left, sent.departure + 8);
    EXPECT_GE(links.EndOf(0, 0, sent.id), sent.left + 1000);
  }
}

}  // namespace
}  // namespace sparfuse::testing
